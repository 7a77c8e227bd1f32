import java.util.HashMap;
import java.util.Map;
import org.apache.qpid.server.SystemLauncher;
import org.apache.qpid.server.model.SystemConfig;

/** One Qpid Broker-J: java QpidNode.java CONFIGURATION WORK, until its input ends. */
public class QpidNode {
    public static void main(String[] given) throws Exception {
        System.setProperty("qpid.work_dir", given[1]);
        Map<String, Object> attributes = new HashMap<>();
        attributes.put(SystemConfig.TYPE, "JSON");
        attributes.put(SystemConfig.INITIAL_CONFIGURATION_LOCATION, given[0]);
        attributes.put("storePath", given[1] + "/config.json");
        attributes.put("startupLoggedToSystemOut", "false");
        SystemLauncher launcher = new SystemLauncher();
        launcher.startup(attributes);
        System.out.println("started");
        System.out.flush();
        while (System.in.read() >= 0) { }
        launcher.shutdown();
    }
}
