import java.util.Set;
import org.apache.activemq.artemis.core.config.Configuration;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.core.settings.impl.AddressFullMessagePolicy;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.spi.core.security.ActiveMQJAASSecurityManager;
import org.apache.activemq.artemis.spi.core.security.jaas.InVMLoginModule;
import org.apache.activemq.artemis.core.config.impl.SecurityConfiguration;

/** One Artemis with its journal in a directory: java ArtemisNode.java ACCEPTOR DIRECTORY. */
public class ArtemisNode {
    public static void main(String[] given) throws Exception {
        Configuration config = new ConfigurationImpl()
            .setPersistenceEnabled(true)
            .setSecurityEnabled(true)
            .setJournalType(JournalType.NIO)
            .setJournalDirectory(given[1] + "/journal")
            .setBindingsDirectory(given[1] + "/bindings")
            .setPagingDirectory(given[1] + "/paging")
            .setLargeMessagesDirectory(given[1] + "/large")
            .setJournalFileSize(1 << 20)
            .setMaxDiskUsage(-1)
            .addAcceptorConfiguration("amqp", given[0]);
        AddressSettings settings = new AddressSettings()
            .setDeadLetterAddress(SimpleString.of("dead"))
            .setAutoCreateDeadLetterResources(true)
            .setMaxDeliveryAttempts(-1)
            .setDefaultAddressRoutingType(RoutingType.ANYCAST)
            .setDefaultQueueRoutingType(RoutingType.ANYCAST)
            .setAutoCreateQueues(false)
            .setAutoCreateAddresses(false);
        config.addAddressSetting("#", settings);
        SecurityConfiguration users = new SecurityConfiguration();
        users.addUser("guest", "guest");
        users.addRole("guest", "all");
        ActiveMQJAASSecurityManager security =
            new ActiveMQJAASSecurityManager(InVMLoginModule.class.getName(), users);
        EmbeddedActiveMQ node = new EmbeddedActiveMQ();
        node.setConfiguration(config);
        node.setSecurityManager(security);
        node.start();
        node.getActiveMQServer().getSecurityRepository().addMatch("#", Set.of(all()));
        System.out.println("started");
        System.out.flush();
        // An order a line: "create QUEUE", "count QUEUE"; its answer is a line.
        java.io.BufferedReader orders =
            new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            SimpleString name = SimpleString.of(words[1]);
            var server = node.getActiveMQServer();
            String answer = "done";
            if (words[0].equals("create")) {
                server.createQueue(
                    org.apache.activemq.artemis.api.core.QueueConfiguration.of(name)
                        .setAddress(name).setRoutingType(RoutingType.ANYCAST).setDurable(true)
                        .setAutoCreateAddress(true));
            } else if (words[0].equals("fail-when-full")) {
                server.getAddressSettingsRepository().addMatch(words[1], new AddressSettings()
                    .setMaxSizeBytes(1 << 20)
                    .setAddressFullMessagePolicy(AddressFullMessagePolicy.FAIL));
            } else if (words[0].equals("count")) {
                var queue = server.locateQueue(name);
                answer = queue == null ? "none" :
                    queue.getMessageCount() + " " + queue.getConsumerCount();
            } else {
                server.destroyQueue(name, null, false, true);
            }
            System.out.println(answer);
            System.out.flush();
        }
        node.stop();
    }

    private static org.apache.activemq.artemis.core.security.Role all() {
        return new org.apache.activemq.artemis.core.security.Role("all", true, true, true, true,
            true, true, true, true, true, true, true, true);
    }
}
