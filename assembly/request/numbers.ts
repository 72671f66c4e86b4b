// Small numbers out of their JSON text, without a float parser: all that a stage asks is whether a count is above one.

/** Whether the text is a number and nothing else. A string may hold one, too, with white space around it and underscores between the digits, as engines' schemas read it. */
export function isNumeric(at: usize, size: u32): bool {
  if (!size) return false;
  let digits = false;
  for (let i: u32 = 0; i < size; i++) {
    const c = <u32>load<u8>(at + i);
    if (c - 0x30 < 10) digits = true;
    else if (c != 0x2b && c != 0x2d && c != 0x2e && (c | 0x20) != 0x65 && c != 0x5f && c > 0x20) return false;
  }
  return digits;
}

/** The value of number text, exact for counts; text that is no number is 0. */
export function numberOf(at: usize, size: u32): f64 {
  if (!isNumeric(at, size)) return 0;
  let mantissa: f64 = 0;
  let scale: i32 = 0;
  let exponent: i32 = 0;
  let exponentSign: i32 = 1;
  let sign: f64 = 1;
  let place: u32 = 0; // 0 integer, 1 fraction, 2 exponent
  for (let i: u32 = 0; i < size; i++) {
    const c = <u32>load<u8>(at + i);
    if (c - 0x30 < 10) {
      const digit = <i32>(c - 0x30);
      if (place == 2) {
        if (exponent < 10000) exponent = exponent * 10 + digit;
      } else {
        mantissa = mantissa * 10 + <f64>digit;
        if (place == 1) scale--;
      }
    } else if (c == 0x2e) place = 1;
    else if ((c | 0x20) == 0x65) place = 2;
    else if (c == 0x2d) {
      if (place == 2) exponentSign = -1;
      else sign = -1;
    }
  }
  let power = scale + exponent * exponentSign;
  if (mantissa == 0) return 0;
  // Bounded: 256 kept bytes give at most 256 digits.
  if (power > 400) return sign * Infinity;
  if (power < -700) return 0;
  for (; power > 0; power--) mantissa *= 10;
  for (; power < 0; power++) mantissa /= 10;
  return sign * mantissa;
}

/** The value of a decimal number as a header has it (`24`, `29.97`), white space around it left out; 0 for anything else and for what is not above 0. */
export function decimalOf(at: usize, size: u32): f64 {
  while (size && load<u8>(at) <= 0x20) {
    at++;
    size--;
  }
  while (size && load<u8>(at + size - 1) <= 0x20) size--;
  let dots = 0;
  for (let i: u32 = 0; i < size; i++) {
    const c = <u32>load<u8>(at + i);
    if (c == 0x2e) dots++;
    else if (c - 0x30 > 9) return 0;
  }
  return dots > 1 || size > 32 ? 0 : numberOf(at, size);
}
