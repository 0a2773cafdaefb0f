import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** The soak lasts a third of the long form however fast the machine is: it begins first, so that others end beside it. */
class SoakFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isOther = ({ moduleId }: TestSpecification): number => Number(!moduleId.endsWith('f30-soak.test.ts'))
    return (await super.sort(files)).sort((a, b) => isOther(a) - isOther(b))
  }
}

/** The fault suite has a run of its own: run.ts builds what it attacks, and says how much of it runs. */
export default defineConfig({
  test: {
    root: new URL('../..', import.meta.url).pathname,
    name: 'faults',
    include: ['test/faults/**/*.test.ts'],
    globalSetup: ['test/faults/harness/global-setup.ts'],
    reporters: ['default', 'json'],
    outputFile: { json: 'fault-results.json' },
    pool: 'forks',
    maxWorkers: 2,
    sequence: { sequencer: SoakFirst },
    hookTimeout: 300_000,
  },
})
