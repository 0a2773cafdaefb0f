import { expect, test } from 'vitest'
import { endsTransaction } from '../../src/storage/transaction-end.ts'

test.each([
  'commit',
  'COMMIT AND CHAIN',
  'commit;',
  '  \n\tCommit work',
  'end',
  'END TRANSACTION',
  'abort',
  'rollback',
  'rollback work',
  'rollback and no chain',
  "prepare transaction 'a'",
  "prepare /* ! */ transaction 'a'",
  "commit prepared 'a'",
  ';commit',
  ' ; ; rollback',
  '-- why\ncommit',
  '-- /*\ncommit',
  '-- why\r\n-- and why\nabort',
  '/* why */commit',
  '/* why /* and why */ still */ commit',
  '/* -- */ commit',
  '/**/ /***/ end',
  'commit/* why */',
  'rollback--',
])('%j ends its transaction', (text) => {
  expect(endsTransaction(text)).toBe(true)
})

test.each([
  '',
  ' ',
  ';',
  '-- commit',
  '/* commit */',
  '/* /* */ commit',
  '/* commit',
  'select 1; commit', // two statements, which no message can hold
  'select commit from t',
  'insert into ended values (1)',
  'committed',
  'ending',
  'savepoint commit',
  'release savepoint s',
  'rollback to s',
  'ROLLBACK TO SAVEPOINT s',
  'rollback work to savepoint s',
  'rollback transaction to s',
  'rollback /* only */ to s',
  'prepare transactions as select 1',
  'prepare p as select 1',
  'do $$ begin commit; end $$',
  'call commit()',
  '"commit"',
  '$1 commit',
])('%j does not', (text) => {
  expect(endsTransaction(text)).toBe(false)
})
