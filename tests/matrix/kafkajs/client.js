// tests/secure/client.go with KafkaJS:
//
//   PROPERTIES create NAME=PARTITIONS...
//   PROPERTIES produce TOPIC COUNT SIZE
//   PROPERTIES consume TOPIC GROUP COUNT
//
// PROPERTIES is a file of librdkafka's; KafkaJS is found by NODE_PATH.
'use strict'

const { readFileSync } = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const LIMIT_MS = 60_000
const THROTTLED = /^Client side throttling in effect for (\d+)ms$/
const told = { codes: [], offsets: [], throttle_ms: 0 }

// It tells nobody but its log.
const logCreator = () => ({ log }) => {
  const found = THROTTLED.exec(log.message)
  if (found) told.throttle_ms = Math.max(told.throttle_ms, Number(found[1]))
}

function client(path) {
  const lines = readFileSync(path, 'utf8').trim().split('\n')
  const properties = Object.fromEntries(lines.map((line) => line.split(/=(.*)/s, 2)))
  const { 'sasl.username': username, 'sasl.password': password } = properties
  return new Kafka({
    brokers: properties['bootstrap.servers'].split(','), clientId: properties['client.id'],
    ssl: { ca: [readFileSync(properties['ssl.ca.location'])] },
    sasl: { mechanism: 'scram-sha-512', username, password },
    requestTimeout: LIMIT_MS, logLevel: logLevel.DEBUG, logCreator,
  })
}

const words = {
  async create(kafka, ...topics) {
    const wanted = topics.map((word) => word.split('='))
    const admin = kafka.admin()
    await admin.connect()
    await admin.createTopics({
      topics: wanted.map(([topic, count]) => ({ topic, numPartitions: Number(count), replicationFactor: 1 })),
      timeout: LIMIT_MS, waitForLeaders: false,
    })
    told.codes = wanted.map(() => 0)
    await admin.disconnect()
  },

  async produce(kafka, topic, count, size) {
    const producer = kafka.producer({ allowAutoTopicCreation: false })
    await producer.connect()
    const messages = Array.from({ length: Number(count) }, (_, number) => ({
      value: String(number).padStart(Number(size), '0'),
    }))
    try {
      await producer.send({ topic, messages })
      told.codes = messages.map(() => 0)
    } catch (error) {
      if (error.code === undefined) throw error
      told.codes = messages.map(() => error.code)
    }
    // What it is told to wait holds up its next request.
    await producer.disconnect()
  },

  async consume(kafka, topic, groupId, count) {
    const consumer = kafka.consumer({ groupId })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((done) => {
      const eachMessage = async ({ message }) => {
        told.offsets.push(Number(message.offset))
        if (told.offsets.length === Number(count)) done()
      }
      consumer.run({ eachMessage })
    })
    await consumer.disconnect()
  },
}

const [path, verb, ...rest] = process.argv.slice(2)
words[verb](client(path), ...rest).then(
  () => console.log(JSON.stringify(told)),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
