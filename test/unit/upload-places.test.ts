import { describe, expect, it } from 'vitest'
import { MAX_TENANT_UPLOADS, MAX_UPLOADS } from '../../src/http/limits.ts'
import { UploadPlaces } from '../../src/http/upload-places.ts'

const overloaded = (count: number, detail = '') =>
  expect.objectContaining({ code: 'overloaded', detail: expect.stringContaining(`${count} uploads${detail}`) })
const fill = (places: UploadPlaces, tenantId: number, count: number) =>
  Array.from({ length: count }, () => places.take(tenantId))

describe('the places of uploads', () => {
  it('are half of one tenant at most, and the others find room', () => {
    const places = new UploadPlaces()
    fill(places, 1, MAX_TENANT_UPLOADS)
    expect(() => places.take(1)).toThrow(overloaded(MAX_TENANT_UPLOADS, ' of this tenant'))
    expect(MAX_TENANT_UPLOADS).toBeLessThan(MAX_UPLOADS)
    expect(() => places.take(2)).not.toThrow()
  })

  it('are so many in all, and free again when one is left', () => {
    const places = new UploadPlaces()
    const leave = [1, 2, 3, 4].flatMap((tenantId) => fill(places, tenantId, MAX_UPLOADS / 4))
    expect(() => places.take(5)).toThrow(overloaded(MAX_UPLOADS))
    leave[0]?.()
    places.take(5)
    expect(() => places.take(5)).toThrow(overloaded(MAX_UPLOADS))
    for (const one of leave.slice(1)) one()
    fill(places, 1, MAX_TENANT_UPLOADS)
    expect(() => places.take(1)).toThrow(overloaded(MAX_TENANT_UPLOADS))
  })
})
