import type { SubmittedItem } from './submissions.ts'

const FIRST_BYTES = 64 * 1024

/** The text of a PostgreSQL array (see array-literal.ts), written value by value. */
class ArrayText {
  #bytes = Buffer.allocUnsafe(FIRST_BYTES)
  #length = 0

  get length(): number {
    return this.#length
  }

  push(value: string): void {
    const text = `${this.#length === 0 ? '{' : ','}"${value.replace(/["\\]/g, '\\$&')}"`
    // UTF-8 takes at most three bytes for a UTF-16 unit; one is kept for the closing brace.
    const needed = this.#length + text.length * 3 + 1
    if (needed > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(needed, this.#bytes.length * 2))
      this.#bytes.copy(larger, 0, 0, this.#length)
      this.#bytes = larger
    }
    this.#length += this.#bytes.write(text, this.#length, 'utf8')
  }

  take(): string {
    this.#length += this.#bytes.write(this.#length === 0 ? '{}' : '}', this.#length, 'latin1')
    const text = this.#bytes.toString('utf8', 0, this.#length)
    this.#length = 0
    return text
  }
}

/** The rows of one chunk as the four parameters of its statement. */
export interface ChunkTexts {
  count: number
  keys: string
  effectKeys: string
  inputs: string
  inputHashes: string
}

/**
 * Items on their way into one statement. They stand in bytes and not in objects: of a million rows each would live just long
 * enough to be moved into the old part of the heap, which would grow to several times what is in use.
 */
export class ItemChunk {
  readonly #keys = new ArrayText()
  readonly #effectKeys = new ArrayText()
  readonly #inputs = new ArrayText()
  readonly #inputHashes = new ArrayText()
  #count = 0

  get count(): number {
    return this.#count
  }

  get bytes(): number {
    return this.#keys.length + this.#effectKeys.length + this.#inputs.length + this.#inputHashes.length
  }

  push(item: SubmittedItem): void {
    this.#count++
    this.#keys.push(item.key)
    this.#effectKeys.push(item.effectKey)
    this.#inputs.push(item.input)
    this.#inputHashes.push(item.inputHash)
  }

  /** Empties it for the next rows. */
  take(): ChunkTexts {
    const count = this.#count
    this.#count = 0
    return {
      count,
      keys: this.#keys.take(),
      effectKeys: this.#effectKeys.take(),
      inputs: this.#inputs.take(),
      inputHashes: this.#inputHashes.take(),
    }
  }
}
