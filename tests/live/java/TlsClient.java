import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultSaslConfig;
import com.rabbitmq.client.GetResponse;
import java.io.FileInputStream;
import java.io.InputStream;
import java.security.KeyStore;
import java.util.Arrays;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Publishes and gets messages over TLS: PORT TRUSTSTORE KEYSTORE PASSWORD PROTOCOL MECHANISM.
 *
 * <p>Stores are in PKCS #12 format; KEYSTORE "none": no certificate. MECHANISM: PLAIN or EXTERNAL.
 */
public class TlsClient {
  private static KeyStore store(String path, char[] password) throws Exception {
    KeyStore made = KeyStore.getInstance("PKCS12");
    try (InputStream in = new FileInputStream(path)) {
      made.load(in, password);
    }
    return made;
  }

  public static void main(String[] given) throws Exception {
    char[] password = given[3].toCharArray();
    TrustManagerFactory trust =
        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store(given[1], password));
    KeyManagerFactory keys = null;
    if (!given[2].equals("none")) {
      keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      keys.init(store(given[2], password), password);
    }
    SSLContext context = SSLContext.getInstance(given[4]);
    context.init(keys == null ? null : keys.getKeyManagers(), trust.getTrustManagers(), null);
    ConnectionFactory factory = new ConnectionFactory();
    factory.setHost("127.0.0.1");
    factory.setPort(Integer.parseInt(given[0]));
    factory.useSslProtocol(context);
    if (given[5].equals("EXTERNAL")) {
      factory.setSaslConfig(DefaultSaslConfig.EXTERNAL);
    }
    Connection connection = factory.newConnection();
    Channel channel = connection.createChannel();
    String queue = channel.queueDeclare().getQueue();
    channel.confirmSelect();
    byte[][] bodies = {new byte[0], "small".getBytes("UTF-8"), new byte[3 << 20]};
    Arrays.fill(bodies[2], (byte) 7);
    AMQP.BasicProperties none = new AMQP.BasicProperties();
    for (byte[] body : bodies) {
      channel.basicPublish("", queue, none, body);
    }
    channel.waitForConfirmsOrDie(20_000);
    for (byte[] body : bodies) {
      GetResponse got = channel.basicGet(queue, true);
      if (got == null || !Arrays.equals(got.getBody(), body)) {
        throw new IllegalStateException("another message than the one of " + body.length);
      }
    }
    channel.close();
    connection.close();
    System.out.println("ok " + given[4] + " " + given[5]);
  }
}
