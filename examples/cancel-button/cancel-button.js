/**
 * A cancel button that tells the truth: the reference for product UIs. No dependencies, no build.
 *
 * - `describe` says what to show for an operation. Pure; the table of the statuses is here.
 * - `follow` polls: `If-None-Match` and `Prefer: wait`, so that an answer means a change, and a quiet operation costs nothing.
 * - `cancel` asks for the cancel. It is an intent, stored before it is answered, so asking again is always safe.
 * - `mount` ties the three to an element of a page.
 *
 * The page asks its own backend (see serve.mjs), which has the API key; a browser never gets one.
 */

const FINAL = ['succeeded', 'partially_succeeded', 'failed', 'cancelled', 'completed_after_cancel']

/** What a cancel promises, by `cancel.guarantee` of the operation, and what to check after it. */
const GUARANTEES = {
  discarded_before_publish: {
    promise: 'Before it is published, all of it is discarded.',
    check: 'Check temporary files and download links.',
  },
  stops_at_batch_boundary: {
    promise: 'It stops after the batch at hand; what is committed stays.',
    check: 'Check the counts, and what to run again.',
  },
  no_new_sends: {
    promise: 'Nothing new is sent; what is being sent is still waited for.',
    check: 'Check what the provider has received.',
  },
  no_new_commands: {
    promise: 'No new commands are sent; those that were sent are looked up.',
    check: 'Check the status at the provider, and whether anything has to be taken back.',
  },
}

const number = (value) => Math.round(value).toLocaleString('en')
const items = (count) => `${number(count)} ${count === 1 ? 'item' : 'items'}`

/** An unknown status is not taken for an end: a newer service may have more of them. */
export const isFinal = (operation) => FINAL.includes(operation.status)

const outcome = ({ counts }) =>
  [
    [counts.applied, 'applied'],
    [counts.skipped, 'were at their target already'],
    [counts.failed, 'failed'],
    [counts.uncertain, 'being checked'],
    [counts.unprocessed, 'not processed'],
  ]
    .filter(([count]) => count > 0)
    .map(([count, word]) => `${number(count)} ${word}`)
    .join(', ')

const secondsLeft = ({ progress }, now) =>
  progress.eta === null ? '' : `, about ${number(Math.max(1, (Date.parse(progress.eta) - now) / 1000))} s left`

/**
 * What to show. `canCancel`: whether to offer the button. `promise`: what a cancel would do, to be read before it is pressed.
 * Never says that nothing happened when something did.
 */
export const describe = (operation, now = Date.now()) => {
  const { status, counts, cancel } = operation
  const guarantee = GUARANTEES[cancel.guarantee] ?? { promise: '', check: '' }
  const isAsked = cancel.requested_at !== null
  const canCancel = cancel.possible && !isAsked && !isFinal(operation)
  const shown = (headline, detail, promise = guarantee.promise) => ({
    headline,
    detail,
    canCancel,
    promise: canCancel ? promise : '',
    isFinal: isFinal(operation),
  })
  switch (status) {
    case 'draft':
      return shown('Not started', 'Items are still being added.', 'Nothing of it has begun: it is cancelled at once.')
    case 'awaiting_approval':
      return shown(
        'Waiting for approval',
        'A second person decides.',
        'Nothing of it has begun: it is cancelled at once.',
      )
    case 'pending':
      return shown('Waiting to begin', items(counts.total), 'Nothing of it has begun: it is cancelled at once.')
    case 'running':
      return shown('Running', `${outcome(operation)}${secondsLeft(operation, now)}`)
    case 'pause_requested':
      return shown('Pausing', `${outcome(operation)}. What is under way is still waited for.`)
    case 'paused':
      return shown(
        'Paused',
        `${outcome(operation)}. It goes on where it was.`,
        'It is cancelled at once, at its checkpoint.',
      )
    case 'cancel_requested':
      return shown('Stopping, checking results', `${outcome(operation)}. Nothing new begins.`)
    case 'reconciliation_required':
      return shown(
        `${items(counts.uncertain)} being checked`,
        `${outcome(operation)}. Whether these were done is asked at the provider, or looked up by a person.${
          isAsked ? ' The cancel stands.' : ''
        }`,
        'Nothing new begins; what is being checked is still cleared up.',
      )
    case 'succeeded':
      return shown('Done', outcome(operation))
    case 'partially_succeeded':
      return shown(`Done, but ${items(counts.failed)} failed`, outcome(operation))
    case 'failed':
      return shown('Failed', `Nothing was done: ${outcome(operation)}.`)
    case 'cancelled':
      return shown('Cancelled', [outcome(operation), guarantee.check].filter(Boolean).join('. '))
    case 'completed_after_cancel':
      return shown('It was already done', `The cancel came too late: ${outcome(operation)}. ${guarantee.check}`)
    default:
      return shown(status, outcome(operation))
  }
}

const WAIT_SECONDS = 25
/** A running operation changes all the time; nobody reads faster. */
const POLL_MS_MIN = 500
const BACKOFF_MS_MAX = 30_000

const sleepFor = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    signal?.addEventListener('abort', () => {
      clearTimeout(timer)
      resolve()
    })
  })

const retryAfterMs = (response, otherwise) => {
  const seconds = Number(response?.headers.get('retry-after') ?? Number.NaN)
  return Number.isFinite(seconds) ? seconds * 1000 : otherwise
}

const isPassing = (status) => status === 408 || status === 429 || status >= 500

/** The text of a problem document, for the user. */
const refusalOf = async (response) => {
  const problem = await response.json().catch(() => null)
  return new Error(problem?.detail ?? `the service answered ${response.status}`)
}

/**
 * Tells `onState` each state that is seen, until the operation is final or `signal` is aborted. `onTrouble` hears when the
 * service is not reached; polling goes on. Throws what trying again cannot help, such as an operation that is not there.
 */
export const follow = async (
  url,
  { onState, onTrouble = () => {}, signal, fetch = globalThis.fetch, sleep = sleepFor },
) => {
  let etag = null
  let failures = 0
  while (!signal?.aborted) {
    const headers = { accept: 'application/json' }
    if (etag !== null) Object.assign(headers, { 'if-none-match': etag, prefer: `wait=${WAIT_SECONDS}` })
    let response = null
    try {
      // with a condition of our own the browser hands 304 to us
      response = await fetch(url, { headers, signal, cache: 'no-store' })
    } catch {
      if (signal?.aborted) return
    }
    if (response === null || isPassing(response.status)) {
      failures++
      onTrouble('The connection is lost; what was started goes on.')
      const backoffMs = Math.min(BACKOFF_MS_MAX, 1000 * 2 ** Math.min(failures, 5)) * (0.5 + Math.random() / 2)
      await sleep(retryAfterMs(response, backoffMs), signal)
      continue
    }
    failures = 0
    if (response.status === 304) {
      // a busy service does not hold polls: it says when to come back
      if (!response.headers.has('preference-applied')) await sleep(retryAfterMs(response, 2000), signal)
      continue
    }
    if (!response.ok) throw await refusalOf(response)
    etag = response.headers.get('etag')
    const operation = await response.json()
    onState(operation)
    if (isFinal(operation)) return
    await sleep(POLL_MS_MIN, signal)
  }
}

const CANCEL_TRIES_MAX = 5

/**
 * Resolves with the operation once the cancel is stored, which is not yet when it has stopped; with null when it had ended
 * before. Asks again when an answer was lost. Throws the text of a refusal.
 */
export const cancel = async (url, { reason, fetch = globalThis.fetch, sleep = sleepFor }) => {
  for (let tries = 1; ; tries++) {
    let response = null
    try {
      response = await fetch(`${url}/cancel`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept: 'application/json' },
        body: JSON.stringify({ reason }),
      })
    } catch {}
    if (response?.ok) return response.json()
    if (response?.status === 409) return null
    if (response !== null && !isPassing(response.status)) throw await refusalOf(response)
    if (tries >= CANCEL_TRIES_MAX)
      throw new Error('The service is not reached: the cancel may not be stored. Try again.')
    await sleep(retryAfterMs(response, 500 * 2 ** tries))
  }
}

/** Shows the operation at `url` in `root`, which has the elements of index.html. Returns how to stop. */
export const mount = (root, url) => {
  const part = (name) => root.querySelector(`[data-part="${name}"]`)
  const [headline, detail, bar, promise, button, trouble] = [
    'headline',
    'detail',
    'bar',
    'promise',
    'button',
    'trouble',
  ].map(part)
  const controller = new AbortController()
  let shownVersion = 0

  const show = (operation) => {
    // a poll that was under way when the button was pressed may tell the state of before
    if (operation.version < shownVersion) return
    shownVersion = operation.version
    const shown = describe(operation)
    headline.textContent = shown.headline
    detail.textContent = shown.detail
    promise.textContent = shown.promise
    button.hidden = !shown.canCancel
    bar.value = operation.progress.ratio ?? 0
    trouble.textContent = ''
    root.dataset.status = operation.status
  }
  const fail = (error) => {
    trouble.textContent = error.message
  }

  button.addEventListener('click', async () => {
    button.disabled = true
    try {
      const operation = await cancel(url, { reason: 'cancelled by the user' })
      if (operation !== null) show(operation)
    } catch (error) {
      fail(error)
    } finally {
      button.disabled = false
    }
  })
  follow(url, {
    onState: show,
    onTrouble: (message) => fail(new Error(message)),
    signal: controller.signal,
  }).catch(fail)
  return () => controller.abort()
}
