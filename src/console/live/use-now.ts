import { useEffect, useState } from 'preact/hooks'

/** The time, for ages and estimates; often enough for people. */
export const useNow = (everyMs = 5_000): number => {
  const [nowMs, setNowMs] = useState(() => Date.now())
  useEffect(() => {
    const timer = setInterval(() => setNowMs(Date.now()), everyMs)
    return () => clearInterval(timer)
  }, [everyMs])
  return nowMs
}
