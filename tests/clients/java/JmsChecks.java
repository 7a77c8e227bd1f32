import jakarta.jms.*;
import java.util.Arrays;
import java.util.Collections;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Checks with Qpid JMS on a broker: one line "passed NAME" or "failed NAME: why" for each. */
public class JmsChecks {
  interface Check {
    void run(Session session, Queue queue) throws Exception;
  }

  static final long WAIT_MS = 20_000;
  static String uri;
  static JmsConnectionFactory factory;

  public static void main(String[] arguments) throws Exception {
    uri = arguments[0];
    String queue = arguments[1];
    factory = new JmsConnectionFactory("guest", "guest", uri);
    check("text, headers and properties", queue, JmsChecks::text);
    check("bytes, map and stream messages", queue, JmsChecks::bodies);
    check("a message of 1 MiB", queue, JmsChecks::large);
    check("1,000 messages to a listener, in order", queue, JmsChecks::listener);
    check("client acknowledge and recover", queue, JmsChecks::recover);
    check("a producer without a destination", queue, JmsChecks::anonymous);
    check("request and reply by a temporary queue", queue, JmsChecks::temporary);
    check("a message expires", queue, JmsChecks::expires);
    check("receiveNoWait of an empty queue", queue, JmsChecks::empty);
    check("a message without a body is refused", queue, JmsChecks::bodiless);
    check("a queue that does not exist is refused", queue, JmsChecks::missing);
    check("a wrong password is refused", queue, JmsChecks::password);
    check("a transacted session is refused", queue, JmsChecks::transacted);
    System.exit(0);
  }

  static void check(String name, String queue, Check check) {
    try (Connection connection = factory.createConnection()) {
      connection.start();
      Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
      check.run(session, session.createQueue(queue));
      System.out.println("passed " + name);
    } catch (Throwable error) {
      System.out.println("failed " + name + ": " + error.toString().replace('\n', ' '));
    }
  }

  static void same(Object wanted, Object found) {
    if (!wanted.equals(found)) {
      throw new AssertionError("expected " + wanted + ", found " + found);
    }
  }

  static Message exchange(Session session, Queue queue, Message message) throws JMSException {
    session.createProducer(queue).send(message);
    return receive(session, queue);
  }

  /** The consumer is closed at once: the next one is to get what it has prefetched. */
  static Message receive(Session session, Queue queue) throws JMSException {
    try (MessageConsumer consumer = session.createConsumer(queue)) {
      Message found = consumer.receive(WAIT_MS);
      if (found == null) {
        throw new AssertionError("no message within " + WAIT_MS + " ms");
      }
      return found;
    }
  }

  static void text(Session session, Queue queue) throws JMSException {
    TextMessage message = session.createTextMessage("größe");
    message.setJMSCorrelationID("c-1");
    message.setJMSType("kind");
    message.setStringProperty("name", "value");
    message.setLongProperty("number", 1L << 40);
    message.setBooleanProperty("flag", true);
    TextMessage found = (TextMessage) exchange(session, queue, message);
    same("größe", found.getText());
    same("c-1", found.getJMSCorrelationID());
    same("kind", found.getJMSType());
    same("value", found.getStringProperty("name"));
    same(1L << 40, found.getLongProperty("number"));
    same(true, found.getBooleanProperty("flag"));
    same(message.getJMSMessageID(), found.getJMSMessageID());
    same(DeliveryMode.PERSISTENT, found.getJMSDeliveryMode());
    same(false, found.getJMSRedelivered());
    same(queue.getQueueName(), ((Queue) found.getJMSDestination()).getQueueName());
  }

  static void bodies(Session session, Queue queue) throws JMSException {
    BytesMessage bytes = session.createBytesMessage();
    bytes.writeBytes(new byte[] {0, -1, 7});
    BytesMessage foundBytes = (BytesMessage) exchange(session, queue, bytes);
    byte[] read = new byte[(int) foundBytes.getBodyLength()];
    foundBytes.readBytes(read);
    same("[0, -1, 7]", Arrays.toString(read));
    MapMessage map = session.createMapMessage();
    map.setInt("one", 1);
    map.setString("two", "zwei");
    MapMessage foundMap = (MapMessage) exchange(session, queue, map);
    same(2, Collections.list(foundMap.getMapNames()).size());
    same(1, foundMap.getInt("one"));
    same("zwei", foundMap.getString("two"));
    StreamMessage stream = session.createStreamMessage();
    stream.writeLong(5);
    stream.writeString("six");
    StreamMessage foundStream = (StreamMessage) exchange(session, queue, stream);
    same(5L, foundStream.readLong());
    same("six", foundStream.readString());
  }

  static void large(Session session, Queue queue) throws JMSException {
    byte[] sent = new byte[1 << 20];
    for (int i = 0; i < sent.length; i++) {
      sent[i] = (byte) (i * 31);
    }
    BytesMessage message = session.createBytesMessage();
    message.writeBytes(sent);
    BytesMessage found = (BytesMessage) exchange(session, queue, message);
    byte[] read = new byte[(int) found.getBodyLength()];
    found.readBytes(read);
    same(true, Arrays.equals(sent, read));
  }

  static void listener(Session session, Queue queue) throws Exception {
    CountDownLatch left = new CountDownLatch(1000);
    int[] next = {0};
    try (Connection other = factory.createConnection()) {
      Session reading = other.createSession(Session.AUTO_ACKNOWLEDGE);
      reading.createConsumer(queue).setMessageListener(message -> {
        try {
          if (message.getIntProperty("number") == next[0]) {
            next[0]++;
            left.countDown();
          }
        } catch (JMSException error) {
          throw new AssertionError(error);
        }
      });
      other.start();
      MessageProducer producer = session.createProducer(queue);
      for (int i = 0; i < 1000; i++) {
        Message message = session.createTextMessage("counted");
        message.setIntProperty("number", i);
        producer.send(message);
      }
      left.await(WAIT_MS, TimeUnit.MILLISECONDS);
    }
    same(1000, next[0]);
  }

  static void recover(Session session, Queue queue) throws JMSException {
    session.createProducer(queue).send(session.createTextMessage("again"));
    try (Connection other = factory.createConnection()) {
      other.start();
      Session acknowledging = other.createSession(Session.CLIENT_ACKNOWLEDGE);
      MessageConsumer consumer = acknowledging.createConsumer(queue);
      same(false, consumer.receive(WAIT_MS).getJMSRedelivered());
      acknowledging.recover();
      Message second = consumer.receive(WAIT_MS);
      same(true, second.getJMSRedelivered());
      second.acknowledge();
    }
    empty(session, queue);
  }

  static void anonymous(Session session, Queue queue) throws JMSException {
    session.createProducer(null).send(queue, session.createTextMessage("to"));
    same("to", ((TextMessage) receive(session, queue)).getText());
  }

  static void temporary(Session session, Queue queue) throws JMSException {
    TemporaryQueue replies = session.createTemporaryQueue();
    MessageConsumer reader = session.createConsumer(replies);
    TextMessage request = session.createTextMessage("question");
    request.setJMSReplyTo(replies);
    Message found = exchange(session, queue, request);
    session.createProducer(found.getJMSReplyTo()).send(session.createTextMessage("answer"));
    same("answer", ((TextMessage) reader.receive(WAIT_MS)).getText());
    reader.close();
    replies.delete();
  }

  static void expires(Session session, Queue queue) throws Exception {
    MessageProducer producer = session.createProducer(queue);
    producer.setTimeToLive(1);
    producer.send(session.createTextMessage("short"));
    Thread.sleep(1000);
    empty(session, queue);
  }

  static void empty(Session session, Queue queue) throws JMSException {
    try (MessageConsumer consumer = session.createConsumer(queue)) {
      same(true, consumer.receiveNoWait() == null);
    }
  }

  static void bodiless(Session session, Queue queue) throws JMSException {
    try {
      session.createProducer(queue).send(session.createMessage());
    } catch (JMSException refused) {
      return;
    }
    throw new AssertionError("a message without a body section was accepted");
  }

  static void missing(Session session, Queue queue) throws JMSException {
    try {
      session.createConsumer(session.createQueue(queue.getQueueName() + "-missing"));
    } catch (InvalidDestinationException refused) {
      return;
    }
    throw new AssertionError("a consumer of a missing queue was made");
  }

  static void password(Session session, Queue queue) throws JMSException {
    try (Connection other = new JmsConnectionFactory("guest", "wrong", uri).createConnection()) {
      other.start();
    } catch (JMSSecurityException refused) {
      return;
    }
    throw new AssertionError("a wrong password was accepted");
  }

  static void transacted(Session session, Queue queue) throws JMSException {
    try (Connection other = factory.createConnection()) {
      other.start();
      Session transacted = other.createSession(Session.SESSION_TRANSACTED);
      transacted.createProducer(queue).send(transacted.createTextMessage("in a transaction"));
      transacted.commit();
    } catch (JMSException refused) {
      return;
    }
    throw new AssertionError("a transaction was accepted");
  }
}
