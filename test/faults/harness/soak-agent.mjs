/**
 * Loaded before an entry file of the build with --expose-gc: tells, when it is asked, what this process holds on to.
 *
 * suite → agent   {soak: number}
 * agent → suite   {soak: number, heapBytes, handles, listeners}
 */
import { EventEmitter } from 'node:events'

/** Every emitter that ever got a listener, for as long as something else holds it. */
const emitters = new Set()
const seen = new WeakSet()
for (const name of ['on', 'addListener', 'once', 'prependListener']) {
  const original = EventEmitter.prototype[name]
  EventEmitter.prototype[name] = function (...args) {
    if (!seen.has(this)) {
      seen.add(this)
      emitters.add(new WeakRef(this))
    }
    return original.apply(this, args)
  }
}

const countListeners = () => {
  let count = 0
  for (const ref of emitters) {
    const emitter = ref.deref()
    if (emitter === undefined) emitters.delete(ref)
    else for (const event of emitter.eventNames()) count += emitter.listenerCount(event)
  }
  return count
}

process.on('message', (message) => {
  if (message.soak === undefined) return
  globalThis.gc()
  // what finalisers let go in the first round is free in the second
  setTimeout(() => {
    globalThis.gc()
    process.send({
      soak: message.soak,
      heapBytes: process.memoryUsage().heapUsed,
      handles: process.getActiveResourcesInfo().length,
      listeners: countListeners(),
    })
  }, 50)
})
