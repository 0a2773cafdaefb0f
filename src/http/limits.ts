/**
 * Every limit of the HTTP edge, by name. The OpenAPI document and the error messages read them from here.
 * Bytes are bytes of UTF-8.
 */

// Transport
export const MAX_BODY_BYTES = 10 * 1024 * 1024
export const MAX_HEADER_BYTES = 16 * 1024
export const MAX_URL_BYTES = 8 * 1024
export const MAX_CONNECTIONS = 10_000
export const HEADERS_TIMEOUT_MS = 15_000
/** For the whole request, body included; a long poll starts after it. Uploads have their own. */
export const REQUEST_TIMEOUT_MS = 60_000
/** After an answer that ends a connection in the midst of a request: time to read it, before the connection is cut. */
export const LAST_ANSWER_MS = 2_000
/** Without a byte in either direction: ends clients that stop reading a download. Longer than any wait of ours. */
export const CONNECTION_TIMEOUT_MS = 120_000
/** Above the 60 s that load balancers keep idle connections, so that they close first and no POST meets a closed socket. */
export const KEEP_ALIVE_TIMEOUT_MS = 72_000
export const MAX_REQUEST_ID_BYTES = 128
export const MAX_PRINCIPAL_BYTES = 255
export const MAX_API_KEY_BYTES = 255
/** Half of what all headers may have. */
export const MAX_JWT_BYTES = 8 * 1024
export const MAX_IDEMPOTENCY_KEY_BYTES = 255

// Too many, too much. The rates themselves are settings: OPLEDGER_RATE_LIMIT.
/** Callers and addresses that rates are counted of, each; the one that came longest ago is forgotten. */
export const MAX_RATE_CALLERS = 10_000
/** The longest IPv6 address with a zone; what a proxy says may be longer. */
export const MAX_ADDRESS_BYTES = 64
export const PRESSURE_LOOK_MS = 500
/** Over the first of each two most requests are refused, over the second all but probes and metrics. */
export const LOOP_DELAY_MS_MAX = 1_000
export const LOOP_DELAY_LAST_MS_MAX = 4_000
export const HEAP_SHARE_MAX = 0.9
export const HEAP_SHARE_LAST_MAX = 0.97
/** For how long what a collection has left counts: who refuses makes no garbage, so no other one may come. */
export const HEAP_JUDGED_MS = 30_000
/** After 5 s without a connection to the database a request is refused anyway. */
export const QUEUE_MS_MAX = 2_000
export const QUEUE_LAST_MS_MAX = 4_500

// JSON
export const MAX_JSON_DEPTH = 32
/** Problems list at most this many faults of one request. */
export const MAX_REPORTED_FAULTS = 100

// Operations
export const MAX_ITEM_KEY_BYTES = 255
export const MAX_TYPE_NAME_BYTES = 255
export const MAX_LABELS = 32
export const MAX_LABEL_KEY_BYTES = 255
export const MAX_LABEL_VALUE_BYTES = 255
export const MAX_REASON_BYTES = 2_000
export const MAX_REFERENCE_BYTES = 1_000
export const MAX_CALLBACK_URL_BYTES = 2_048
export const MAX_AFTER = 100
export const MAX_STOP_CONDITIONS = 16
export const MAX_STOP_CONDITION_BYTES = 200
export const MAX_PRIORITY = 1_000

// Uploads
export const MAX_UPLOAD_BYTES = 1024 * 1024 * 1024
/** The slowest that 1 GiB may arrive is some 600 kB/s. */
export const UPLOAD_TIMEOUT_MS = 30 * 60_000
/** How long an upload may keep us waiting, and how many bytes buy it a further second. */
export const UPLOAD_PATIENCE_MS = 90_000
export const UPLOAD_BYTES_PER_SECOND_MIN = 1_000
/** How long a client may go on sending after its upload was refused. */
export const DISCARD_MS = 30_000
/** Of a line of NDJSON or a record of CSV. */
export const MAX_ROW_BYTES = 1024 * 1024
/** Handed on at a time: few, so that a row is forgotten while it is young, and the heap does not grow by it. */
export const ROWS_AT_A_TIME = 100
export const MAX_CSV_COLUMNS = 256
export const MAX_CSV_COLUMN_BYTES = 255
/** At a time in one process, which bounds their memory; over it 503. */
export const MAX_UPLOADS = 8
/** Of these, for one tenant: the others find room whatever it does. */
export const MAX_TENANT_UPLOADS = MAX_UPLOADS / 2

// Callbacks
/** An event names an effect and says what became of it; providers send a few KiB. */
export const MAX_CALLBACK_BYTES = 256 * 1024

// Lists
export const DEFAULT_PAGE_LIMIT = 50
export const MAX_PAGE_LIMIT = 500
export const MAX_CURSOR_BYTES = 1_024
export const MAX_FILTER_BYTES = 1_000
export const MAX_FILTER_VALUES = 32

// Waiting
export const MAX_WAIT_SECONDS = 60
/** Long polls and event streams at a time; over it a long poll answers at once and a stream with 503. */
export const MAX_WAITERS = 5_000
export const MAX_STREAMS = 2_000
/** Below the 30 s after which some proxies end what is silent. */
export const SSE_KEEP_ALIVE_SECONDS = 15
/** Between two looks at an operation that changes all the time. */
export const SSE_LOOK_MS = 1_000
/** While the database is away. */
export const SSE_OUTAGE_LOOK_MS = 5_000
/** Then a stream ends, and its client resumes. */
export const SSE_STREAM_SECONDS = 15 * 60
/** And up to as much again, so that not all come back at once. */
export const SSE_RETRY_MS = 2_000
export const MAX_RETRY_AFTER_SECONDS = 30
export const METRICS_CACHE_MS = 2_000
/** Callers whose gauges are kept; one more, and all are read anew. */
export const METRICS_CACHE_ENTRIES = 100
export const MAX_KNOWN_SCRAPERS = 100
export const KNOWN_SCRAPER_MS = 5 * 60_000

/** Codes that one replay may override. */
export const MAX_FORCED_CODES = 20

// Tokens (JWT)
/** Between clocks of whoever issues tokens and ours. */
export const JWT_CLOCK_TOLERANCE_SECONDS = 30
export const JWKS_TIMEOUT_MS = 5_000
export const MAX_JWKS_BYTES = 256 * 1024
/** So long a key that was taken back is taken still. */
export const JWKS_CACHE_MS = 10 * 60_000
/** Between two fetches for the sake of a key that is not among those that are there. */
export const JWKS_COOLDOWN_MS = 30_000
/** After a fetch that failed. */
export const JWKS_FAILED_MS = 5_000

// Workers elsewhere
/** A token of ours is some 400 bytes. */
export const MAX_TOKEN_BYTES = 1_024
export const MAX_HOST_BYTES = 255
export const MAX_CODE_VERSION_BYTES = 64
export const MAX_WORKER_TYPES = 100
export const MAX_WORKER_LEASES = 100
/** Of one call, and as many as there can be items in hand under one lease. */
export const MAX_RESULTS = 500
export const MAX_EFFECT_KEY_BYTES = 1_000
export const MAX_RESULT_CODE_BYTES = 100
export const MAX_RESULT_TEXT_BYTES = 500
