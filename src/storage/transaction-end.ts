/**
 * Whether a statement of somebody else ends the transaction in which it is sent. How it begins tells: a text holds one statement
 * (PostgreSQL documentation, 54.2.3, extended query), and what runs within one, as DO, CALL and functions do, cannot end the
 * transaction around it.
 */
const WORDS_MAX = 3
const OUTSIDE_COMMENT = /\/\*|--[^\r\n]*|[\s;]+|[a-z]+|[\s\S]/iy
const INSIDE_COMMENT = /\/\*|\*\/|[\s\S]/y

/** Words, in lower case, before anything else but comments, which nest, and empty statements. */
const leadingWords = (text: string): string[] => {
  const words: string[] = []
  for (let at = 0, depth = 0; at < text.length && words.length < WORDS_MAX; ) {
    const pattern = depth > 0 ? INSIDE_COMMENT : OUTSIDE_COMMENT
    pattern.lastIndex = at
    const part = pattern.exec(text)?.[0] ?? ''
    at += part.length
    if (part === '/*') depth++
    else if (part === '*/' && depth > 0) depth--
    else if (depth > 0 || part.startsWith('--') || /^[\s;]/.test(part)) continue
    else if (/^[a-z]/i.test(part)) words.push(part.toLowerCase())
    else break
  }
  return words
}

export const endsTransaction = (text: string): boolean => {
  const [first, second, third] = leadingWords(text)
  switch (first) {
    case 'commit':
    case 'end':
    case 'abort':
      return true
    case 'rollback':
      // to a savepoint, the transaction goes on
      return second !== 'to' && !((second === 'work' || second === 'transaction') && third === 'to')
    case 'prepare':
      return second === 'transaction'
    default:
      return false
  }
}
