/**
 * Leaves words for people out of the mutation: calls of `log`, and the texts of thrown errors. No decision hangs on them,
 * and a test that repeats them word by word would only say that they were not edited. What a client or an operator is shown
 * as an answer (details, reasons, messages in the ledger) is mutated like everything else.
 */
const isLogCall = ({ node }) =>
  node.type === 'CallExpression' && node.callee.type === 'MemberExpression' && node.callee.object.name === 'log'

/** The first argument of `new SomeError(…)`, and the second one of `assertThat(…)`. */
const isErrorText = ({ node, parent }) => {
  if (node.type !== 'StringLiteral' && node.type !== 'TemplateLiteral') return false
  if (parent?.type === 'NewExpression') return /Error$|^HandlerStalled$|^FenceLost$|^TimeIsUp$/.test(parent.callee.name)
  return parent?.type === 'CallExpression' && parent.callee.name === 'assertThat'
}

export const strykerPlugins = [
  {
    kind: 'Ignore',
    name: 'words',
    value: {
      shouldIgnore: (path) => {
        if (isLogCall(path)) return 'a log line'
        return isErrorText(path) ? 'the text of an error' : undefined
      },
    },
  },
]
