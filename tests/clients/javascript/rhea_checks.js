// Checks of rhea, a client of AMQP 1.0 for JavaScript: node rhea_checks.js HOST PORT ADDRESS
//
// A line "passed NAME" or "failed NAME: why" for each. The queue at ADDRESS is an empty quorum queue.

const rhea = require('rhea');

const [host, port, address] = process.argv.slice(2);
const WAIT_MS = 60000;
const LOGIN = { host, port: Number(port), username: 'guest', password: 'guest', reconnect: false };

function connect(changed = {}) {
  return rhea.create_container().connect({ ...LOGIN, hostname: 'vhost:/', ...changed });
}

function once(emitter, ...events) {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`no ${events.join(' or ')}`)), WAIT_MS);
    for (const event of events) {
      emitter.once(event, (context) => {
        clearTimeout(late);
        resolve(context);
      });
    }
  });
}

function expect(holds, what) {
  if (!holds) throw new Error(what);
}

async function sender(connection, target = address, more = {}) {
  const made = connection.open_sender({ target, ...more });
  await once(made, 'sendable');
  return made;
}

async function send(link, message) {
  link.send(message);
  await once(link, 'accepted');
}

async function receive(link) {
  link.add_credit(1);
  return once(link, 'message');
}

function receiver(connection, more = {}) {
  return connection.open_receiver({ source: address, credit_window: 0, autoaccept: false, ...more });
}

// A session that ends has handles which rhea still uses: it raises that where nothing can catch it.
process.on('uncaughtException', () => {});

const checks = {
  'a hundred messages, each sent when the one before was accepted': async (connection) => {
    const out = await sender(connection);
    for (let i = 0; i < 100; i++) await send(out, { body: `m${i}`, message_id: i });
  },
  'they are received in order': async (connection) => {
    const link = receiver(connection, { credit_window: 20 });
    const bodies = [];
    await new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`only ${bodies.length}`)), WAIT_MS);
      link.on('message', ({ message, delivery }) => {
        bodies.push(message.body);
        delivery.accept();
        if (bodies.length === 100) {
          clearTimeout(late);
          resolve();
        }
      });
    });
    expect(bodies.every((body, i) => body === `m${i}`), 'they are not in order');
  },
  'released, modified, accepted': async (connection) => {
    await send(await sender(connection), { body: 'x' });
    const link = receiver(connection);
    (await receive(link)).delivery.release({ delivery_failed: false });
    const second = await receive(link);
    expect(second.message.message_annotations['x-acquired-count'] === 1, 'x-acquired-count');
    second.delivery.modified({ delivery_failed: true });
    const third = await receive(link);
    expect(third.message.delivery_count === 1, 'delivery-count');
    third.delivery.accept();
  },
  rejected: async (connection) => {
    const out = await sender(connection);
    await send(out, { body: 'bad' });
    const link = receiver(connection);
    (await receive(link)).delivery.reject({ condition: 'app:bad', description: 'no' });
    await send(out, { body: 'good' });
    const { message, delivery } = await receive(link);
    expect(message.body === 'good', message.body);
    delivery.accept();
  },
  'a drain': async (connection) => {
    const link = receiver(connection);
    await once(link, 'receiver_open');
    link.drain = true;
    link.add_credit(5);
    await once(link, 'receiver_drained');
  },
  'settled both ways': async (connection) => {
    (await sender(connection, address, { snd_settle_mode: 1 })).send({ body: 'settled' });
    const { message } = await receive(receiver(connection, { snd_settle_mode: 1 }));
    expect(message.body === 'settled', message.body);
  },
  'a sender without a target': async (connection) => {
    const out = await sender(connection, {});
    await send(out, { to: address, body: 'by its to' });
    out.send({ to: '/queues/none', body: 'nowhere' });
    await once(out, 'released');
    (await receive(receiver(connection))).delivery.accept();
  },
  'a missing queue': async (connection) => {
    const link = connection.open_receiver({ source: '/queues/none', credit_window: 0 });
    const { receiver: refused } = await once(link, 'receiver_error');
    expect(refused.error.condition === 'amqp:not-found', refused.error.condition);
  },
  'types of bodies and properties': async (connection) => {
    const out = await sender(connection);
    const link = receiver(connection);
    const data = rhea.message.data_section(Buffer.from('bytes'));
    for (const body of ['text', { a: 1, b: ['c', true, null] }, [1, 'two'], data]) {
      await send(out, { body, application_properties: { n: 7 }, group_id: 'g' });
      const { message, delivery } = await receive(link);
      expect(JSON.stringify(message.body) === JSON.stringify(body), JSON.stringify(message.body));
      expect(message.application_properties.n === 7 && message.group_id === 'g', 'properties');
      delivery.accept();
    }
  },
  'a message of 3 MB': async (connection) => {
    const body = 'y'.repeat(3000000);
    await send(await sender(connection), { body });
    const { message, delivery } = await receive(receiver(connection));
    expect(message.body === body, 'it differs');
    delivery.accept();
  },
  'a reply by a dynamic source': async (connection) => {
    const capabilities = ['rabbitmq:volatile-queue'];
    const source = { dynamic: true, capabilities, expiry_policy: 'link-detach' };
    const link = receiver(connection, { source, snd_settle_mode: 1 });
    await once(link, 'receiver_open');
    link.add_credit(1);
    (await sender(connection, {})).send({ to: link.source.address, body: 'reply' });
    const { message } = await once(link, 'message');
    expect(message.body === 'reply', message.body);
  },
  'links attached and detached in two sessions': async (connection) => {
    const sessions = [connection.create_session(), connection.create_session()];
    sessions.forEach((session) => session.begin());
    for (let i = 0; i < 20; i++) {
      const link = await sender(sessions[i % 2]);
      link.close();
      await once(link, 'sender_close');
    }
    sessions[0].close();
    await once(sessions[0], 'session_close');
  },
};

async function refused(changed) {
  const connection = connect(changed);
  await once(connection, 'connection_error', 'disconnected', 'connection_close');
}

async function run(name, check) {
  try {
    await check();
    console.log(`passed ${name}`);
  } catch (error) {
    console.log(`failed ${name}: ${error.message}`);
  }
}

async function main() {
  for (const [name, check] of Object.entries(checks)) {
    await run(name, async () => {
      const connection = connect();
      await check(connection);
      connection.close();
      await once(connection, 'connection_close');
    });
  }
  await run('an unknown vhost', () => refused({ hostname: 'vhost:none' }));
  await run('a wrong password', () => refused({ password: 'wrong' }));
  process.exit(0);
}

main();
