/** The API's rule for what a person may override with a reason: signs of trouble, never what keeps effects from being doubled. */
const FORCEABLE = /^(bug-suspected|downstream_error_rate_5m > .*|replay_reject_rate > .*)$/

export const isForceable = (code: string): boolean => FORCEABLE.test(code)
