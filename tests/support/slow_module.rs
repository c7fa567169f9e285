//! A WASI program that takes seconds to compile and does nothing. Knows no compiler.

/// Reads its parameter, multiplies, excludes and adds it: `local.get 0`, `i64.mul`, `local.get 0`,
/// `i64.xor`, `local.get 0`, `i64.add`.
const STEP: [u8; 9] = [0x20, 0, 0x7e, 0x20, 0, 0x85, 0x20, 0, 0x7c];
const STEPS: usize = 100;

/// A core module with so many functions: a thousand take one or two seconds of a processor. No two are
/// the same, since those would be compiled once.
pub fn slow_module(functions: usize) -> Vec<u8> {
    let start = [2, 0, 0x0b];
    let bodies = (0..functions).flat_map(body);
    let mut kinds = vec![0];
    kinds.resize(functions + 1, 1);
    let code: Vec<u8> = start.into_iter().chain(bodies).collect();
    let sections = [
        // `func ()` and `func (i64) -> i64`.
        section(1, 2, &[0x60, 0, 0, 0x60, 1, 0x7e, 1, 0x7e]),
        section(3, functions + 1, &kinds),
        section(5, 1, &[0, 1]),
        section(7, 2, b"\x06memory\x02\0\x06_start\0\0"),
        section(10, functions + 1, &code),
    ];
    [b"\0asm\x01\0\0\0".to_vec(), sections.concat()].concat()
}

/// A function that begins with its parameter and `number`.
fn body(function: usize) -> Vec<u8> {
    let mut body = vec![0, 0x20, 0, 0x42];
    body.extend(number(function));
    body.push(0x7c);
    (0..STEPS).for_each(|_| body.extend(STEP));
    body.push(0x0b);
    [number(body.len()), body].concat()
}

fn section(id: u8, count: usize, items: &[u8]) -> Vec<u8> {
    let items = [&number(count), items].concat();
    [vec![id], number(items.len()), items].concat()
}

/// As WebAssembly writes whole numbers (LEB128).
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value % 128).expect("seven bits");
        value /= 128;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}
