// A producer and consumers of npm's ali-ons against the name server named by the first argument.
// Every fact is told as one JSON object a line; the process is ended by whoever reads them.
'use strict';

const { Consumer, Producer, Message } = require('ali-ons');

const [namesrv, topic, countText] = process.argv.slice(2);
const count = Number(countText);
const tags = ['TagA', 'TagB', 'TagC'];
const options = {
  httpclient: {},
  nameSrv: namesrv,
  // A group's retry topic is found by looking again.
  pollNameServerInteval: 1000,
  rebalanceInterval: 1000,
};
if (process.env.ACCESS_KEY) {
  options.accessKeyId = process.env.ACCESS_KEY;
  options.accessKeySecret = process.env.SECRET_KEY;
}
const tell = line => process.stdout.write(JSON.stringify(line) + '\n');

function consume(by, expression, more = {}) {
  const consumer = new Consumer({
    ...options,
    consumerGroup: `node-${by}`,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    ...more,
  });
  // The client calls it an error that a group has no offset yet.
  consumer.on('error', error => tell({ kind: 'complaint', by, error: String(error) }));
  let failed = false;
  consumer.subscribe(topic, expression, async message => {
    tell({
      kind: 'received',
      by,
      body: message.body.toString(),
      tags: message.tags,
      keys: message.keys,
      reconsumeTimes: message.reconsumeTimes,
      properties: message.properties,
    });
    if (by === 'retrying' && !failed) {
      failed = true;
      return Consumer.ACTION_RETRY;
    }
  });
  return consumer.ready();
}

async function main() {
  const producer = new Producer({ ...options, producerGroup: 'node-producers' });
  producer.on('error', error => tell({ kind: 'complaint', by: 'producer', error: String(error) }));
  await producer.ready();
  for (let number = 0; number < count; number++) {
    const message = new Message(topic, tags[number % tags.length], `body-${number}`);
    message.keys = [`key-${number}`];
    message.properties.number = String(number);
    const sent = await producer.send(message);
    tell({ kind: 'sent', status: sent.sendStatus, msgId: sent.msgId });
  }
  await Promise.all([
    consume('filtering', 'TagA || TagC'),
    consume('retrying', 'TagB'),
    consume('broadcasting', '*', { isBroadcast: true }),
  ]);
  tell({ kind: 'ready' });
}

main().catch(error => {
  tell({ kind: 'failed', error: String(error.stack) });
  process.exitCode = 1;
});
