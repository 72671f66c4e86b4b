/** `host:port`, IPv6 in brackets. */
export function hostPortText(address: { host: string; port: number }): string {
  return `${address.host.includes(":") ? `[${address.host}]` : address.host}:${address.port.toString()}`;
}
