import { createRequire } from 'node:module'
import { expect, test } from 'vitest'
import { loadConfig } from '../../../src/config.ts'
import { readRepositoryFile, readYamlFile } from './files.ts'

interface Probe {
  httpGet?: { path: string }
}
interface Container {
  command: string[]
  image: string
  env: { name: string; value: string }[]
  securityContext: unknown
  resources: { requests: Record<string, string>; limits: Record<string, string> }
  volumeMounts: { name: string; mountPath: string }[]
  livenessProbe?: Probe
  readinessProbe?: Probe
  startupProbe?: Probe
}
interface PodSpec {
  containers: [Container]
  volumes: { name: string; secret?: { secretName: string } }[]
  securityContext: unknown
  serviceAccountName: string
  automountServiceAccountToken: boolean
  terminationGracePeriodSeconds?: number
}
interface Manifest {
  apiVersion: string
  kind: string
  metadata: { name: string; namespace?: string }
  data?: Record<string, string>
  spec: {
    template: { metadata: { labels: Record<string, string> }; spec: PodSpec }
    selector: { matchLabels: Record<string, string> } & Record<string, string>
    scaleTargetRef: { kind: string; name: string }
    metrics: { type: string; external?: { metric: { name: string } } }[]
    podSelector: { matchLabels?: Record<string, string> }
    maxUnavailable?: number
  }
}

/** The package has a module for each kind, which knows the schema of its version of the API. */
const modelOf = ({ apiVersion, kind }: Manifest): (new (data: unknown) => { validate(): void }) =>
  createRequire(import.meta.url)(`kubernetes-models/${apiVersion}/${kind}`)[kind]

const [kustomization] = readYamlFile('deploy/kubernetes/kustomization.yaml') as [{ resources: string[] }]
const manifests = kustomization.resources.flatMap((file) => readYamlFile(`deploy/kubernetes/${file}`) as Manifest[])
const named = manifests.map((manifest): [string, Manifest] => [`${manifest.kind} ${manifest.metadata.name}`, manifest])
const ofKind = (kind: string): Manifest[] => manifests.filter((manifest) => manifest.kind === kind)
const pods = [...ofKind('Deployment'), ...ofKind('Job')].map(({ metadata, spec }) => ({
  name: metadata.name,
  labels: spec.template.metadata.labels,
  pod: spec.template.spec,
  container: spec.template.spec.containers[0],
}))

/** What the API would say of a fault against its schema; null: nothing. Members that it does not know are looked for by deploy/check.sh. */
const faultOf = (manifest: Manifest): string | null => {
  try {
    const Model = modelOf(manifest)
    new Model(manifest).validate()
    return null
  } catch (error) {
    return String(error)
  }
}

test.each(named)('%s is what the API takes', (_name, manifest) => {
  expect(faultOf(manifest)).toBeNull()
  if (manifest.kind !== 'Namespace') expect(manifest.metadata.namespace).toBe('opledger')
})

test('a manifest with a fault is not', () => {
  const broken = (change: (manifest: Manifest) => void): string | null => {
    const manifest = structuredClone(ofKind('Deployment')[0] as Manifest)
    change(manifest)
    return faultOf(manifest)
  }
  expect(broken(() => {})).toBeNull()
  expect(broken((manifest) => Object.assign(manifest.spec, { minReadySeconds: 'soon' }))).not.toBeNull()
  expect(
    broken((manifest) => Object.assign(manifest.spec.template.spec, { containers: [{ image: 'a' }] })),
  ).not.toBeNull()
})

test.each(pods)(
  '$name is no root, writes nowhere, may nothing, has limits, and says nothing to the cluster',
  ({ pod, container }) => {
    expect(pod).toMatchObject({
      serviceAccountName: ofKind('ServiceAccount')[0]?.metadata.name,
      automountServiceAccountToken: false,
      securityContext: { runAsNonRoot: true, runAsUser: 65532, seccompProfile: { type: 'RuntimeDefault' } },
    })
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    })
    expect(Object.keys(container.resources.requests).sort()).toEqual(['cpu', 'memory'])
    expect(container.resources.limits.memory).toBeDefined()
    expect(container.volumeMounts.map(({ name }) => name).sort()).toEqual(pod.volumes.map(({ name }) => name).sort())
  },
)

test('the user is that of the image', () => {
  expect(readRepositoryFile('Dockerfile')).toContain('USER 65532:65532')
})

test('the api is asked how it is, on paths that it has, and both are given the time to drain', () => {
  const api = pods.find(({ name }) => name === 'opledger-api')
  const paths = ['startupProbe', 'livenessProbe', 'readinessProbe'] as const
  expect(paths.map((probe) => api?.container[probe]?.httpGet?.path)).toEqual(['/livez', '/livez', '/readyz'])
  const document = JSON.parse(readRepositoryFile('openapi/openapi.json'))
  for (const path of ['/livez', '/readyz']) expect(Object.keys(document.paths)).toContain(path)
  for (const { name, pod } of pods) {
    if (name !== 'opledger-migrate') expect(pod.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(30)
  }
})

test('the settings are settings', () => {
  const data = ofKind('ConfigMap')[0]?.data ?? {}
  for (const { container } of pods) {
    const files = container.env.map(({ name, value }) => [name.replace(/_FILE$/, ''), value])
    expect(files.map(([key]) => key)).toEqual(['DATABASE_URL', 'OPLEDGER_DOWNLOAD_SECRET', 'OPLEDGER_WEBHOOK_SECRET'])
    // as if the files held these
    const secrets = {
      DATABASE_URL: 'postgres://u:p@h/d',
      OPLEDGER_DOWNLOAD_SECRET: 'x'.repeat(32),
      OPLEDGER_WEBHOOK_SECRET: `whsec_${Buffer.alloc(32).toString('base64')}`,
    }
    expect(loadConfig({ HOST: '0.0.0.0', ...data, ...secrets }, 'api').artifactStore.kind).toBe('s3')
  }
})

test('budgets, autoscalers, services and policies name pods that are there', () => {
  const labels = pods.map((pod) => pod.labels)
  const matches = (wanted: Record<string, string>): boolean =>
    labels.some((given) => Object.entries(wanted).every(([key, value]) => given[key] === value))
  for (const { spec } of [...ofKind('PodDisruptionBudget'), ...ofKind('Deployment')]) {
    expect(matches(spec.selector.matchLabels)).toBe(true)
  }
  expect(ofKind('PodDisruptionBudget')).toHaveLength(2)
  for (const { spec } of ofKind('Service')) expect(matches(spec.selector)).toBe(true)
  for (const { spec } of ofKind('NetworkPolicy')) expect(matches(spec.podSelector.matchLabels ?? {})).toBe(true)
  const deployments = ofKind('Deployment').map(({ metadata }) => metadata.name)
  expect(ofKind('HorizontalPodAutoscaler').map(({ spec }) => spec.scaleTargetRef.name)).toEqual(deployments)
})

test('workers are scaled by the age of the queue: the metric that is recorded and offered', () => {
  const worker = ofKind('HorizontalPodAutoscaler').find(({ metadata }) => metadata.name === 'opledger-worker')
  const [offered] = readYamlFile('deploy/kubernetes/external-metrics.yaml') as [
    { rules: { external: { seriesQuery: string; name: { as: string } }[] } },
  ]
  const [rule] = offered.rules.external
  expect(worker?.spec.metrics.map(({ external }) => external?.metric.name)).toEqual([rule?.name.as])
  expect(readRepositoryFile('deploy/prometheus/rules.yml')).toContain(`record: ${rule?.seriesQuery}\n`)
})
