# Makes a standard library for wasm32-wasip2 where rustup cannot download one: from Debian's
# sources of the very same Rust version. Part of plugins/build, which sources it; must not know
# guests. Needs apt, dpkg and the machine's own Debian mirror; installs nothing, leaves /etc alone.

# The suites in which that version may be found, in this order.
own_std_suites="trixie-backports testing unstable"

own_std_version() { rustc --version | cut -d ' ' -f 2; }
own_std_home() { printf '%s\n' "$tools/guest-std/$(own_std_version)"; }

# Sets `sysroot` to what an earlier run built.
own_standard_library_cached() {
  local home
  home=$(own_std_home)
  [ -f "$home/complete" ] || return 1
  sysroot=$home/sysroot
}

# Sets `sysroot`, building what is missing.
own_standard_library() {
  own_standard_library_cached && return
  local home version tool
  home=$(own_std_home)
  version=$(own_std_version)
  for tool in apt-get apt-cache dpkg tar; do
    command -v "$tool" >/dev/null || { say "no $tool: a standard library of our own needs Debian's tools"; return 1; }
  done
  mkdir -p "$home"
  step "Debian's sources of Rust $version" own_std_fetch "$home" "$version" || return 1
  step "unpacking them" own_std_unpack "$home" "$version" || return 1
  step "building the standard library" own_std_build "$home" || return 1
  rm -rf "$home/seed/target" "$home/apt" "$home/library"
  : >"$home/complete"
  sysroot=$home/sysroot
}

# The mirror that the machine's own apt uses for Debian.
own_std_mirror() {
  cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^ *#' \
    | grep -oE 'https?://[^ ]+/debian/?( |$)' | tr -d ' ' | head -n 1
}

# apt with its own configuration, lists and cache in HOME/apt; its Release files must be signed.
own_std_apt() { # own_std_apt HOME COMMAND ARGUMENT...
  local home=$1 command=$2; shift 2
  "$command" -q -o Dir::Etc::sourcelist="$home/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$home/apt/lists" -o Dir::Cache="$home/apt/cache" \
    -o APT::Sandbox::User=root -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
    -o Acquire::Languages=none "$@" </dev/null
}

own_std_fetch() { # own_std_fetch HOME VERSION
  local home=$1 version=$2 mirror suite debian
  [ -f "$home/rust-src.deb" ] && [ -f "$home/wasi-libc.deb" ] && return
  mirror=$(own_std_mirror) || true
  [ -n "$mirror" ] || { say "no Debian mirror in this machine's apt sources"; return 1; }
  for suite in $own_std_suites; do
    rm -rf "$home/apt"
    mkdir -p "$home/apt/lists/partial" "$home/apt/cache/archives/partial" "$home/apt/download"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$suite" \
      >"$home/apt/sources.list"
    own_std_apt "$home" apt-get update >&2 || continue
    debian=$(own_std_apt "$home" apt-cache madison rust-src | awk -v v="$version+" 'index($3, v) == 1 { print $3; exit }')
    [ -n "$debian" ] || { say "$suite has no rust-src $version"; continue; }
    ( cd "$home/apt/download" && own_std_apt "$home" apt-get download "rust-src=$debian" wasi-libc >&2 ) || continue
    mv "$home"/apt/download/rust-src_*.deb "$home/rust-src.deb"
    mv "$home"/apt/download/wasi-libc_*.deb "$home/wasi-libc.deb"
    return
  done
  say "Debian has no sources of Rust $version any more"
  return 1
}

own_std_unpack() { # own_std_unpack HOME VERSION
  rm -rf "$1/library" "$1/wasi"
  ( cd "$1" && dpkg --fsys-tarfile rust-src.deb | tar -x --strip-components=4 "./usr/src/rustc-$2/library" ) || return 1
  dpkg -x "$1/wasi-libc.deb" "$1/wasi"
}

# Lets cargo build the standard library for an empty crate and lays the result out as a sysroot.
own_std_build() { # own_std_build HOME
  local home=$1 root lib host
  root=$(rustc --print sysroot)
  host=$(rustc -vV | sed -n 's/^host: //p')
  lib=$home/sysroot/lib/rustlib/$target/lib
  rm -rf "$home/seed" "$home/sysroot"
  mkdir -p "$home/seed/src" "$lib/self-contained"
  : >"$home/seed/src/lib.rs"
  printf '[package]\nname = "seed"\nedition = "2024"\n[workspace]\n' >"$home/seed/Cargo.toml"
  (
    cd "$home/seed"
    unset RUSTC CARGO_ENCODED_RUSTFLAGS CARGO_TARGET_DIR CARGO_BUILD_TARGET CARGO_BUILD_TARGET_DIR
    # The two switches are what cargo and rustc use to build a standard library themselves.
    # Dependencies come from crates-io: Debian's vendored wit-bindgen lacks a prebuilt object.
    export RUSTC_BOOTSTRAP=1 __CARGO_TESTS_ONLY_SRC_ROOT=$home/library
    export RUSTFLAGS="-Cembed-bitcode=yes -Zforce-unstable-if-unmarked --remap-path-prefix=$home=/std --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    cargo build --release --target "$target" -Zbuild-std=std,panic_abort,proc_macro >&2
  ) || return 1
  find "$home/seed/target/$target/release/deps" -name '*.rlib' ! -name 'libseed-*' -exec cp {} "$lib/" \;
  cp "$home"/wasi/usr/lib/wasm32-wasip2/*.[ao] "$lib/self-contained/"
  # Build scripts and macros of a guest are built for this machine, with rustup's own library.
  ln -s "$root/lib/rustlib/$host" "$home/sysroot/lib/rustlib/$host"
}
