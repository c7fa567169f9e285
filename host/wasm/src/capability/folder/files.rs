//! Makes a folder readable but not writable, and limits the handles that a guest holds in it.

use crate::capability::caller::{Caller, Grant};
use crate::capability::description::{LINKED_WASI_2, LINKED_WASI_3};
use crate::capability::refusals::Denial;
use crate::capability::shown::{Package, TracedCall};
use crate::limits::{LISTINGS, PATH};
use std::path::PathBuf;
use wasmtime::StoreContextMut;
use wasmtime::component::{Accessor, ComponentNamedList, Lift, Linker, LinkerInstance, Resource};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystem, WasiFilesystemView};
use wasmtime_wasi::p2::{DynInputStream, ReaddirIterator};
use wasmtime_wasi::{p2, p3};

const CHANGE: Denial = Denial::always(&<Option<PathBuf>>::DESCRIPTION, "change what it reads");
const LEAVE: Denial = Denial::always(
    &<Option<PathBuf>>::DESCRIPTION,
    "leave the folder that it reads",
);

type Types<'a, C> = LinkerInstance<'a, C>;
type One = (Resource<Descriptor>, String);
type Linkable<P> = (Resource<Descriptor>, P, String);
type Two = (Resource<Descriptor>, String, String);
type MoveArguments = (Resource<Descriptor>, String, Resource<Descriptor>, String);
type LinkArguments<P> = (
    Resource<Descriptor>,
    P,
    String,
    Resource<Descriptor>,
    String,
);
/// The parameters of `open-at`, with the flags of one version.
type Open<P, O, D> = (Resource<Descriptor>, P, String, O, D);

const BY_PATH: [&str; 3] = [
    "[method]descriptor.create-directory-at",
    "[method]descriptor.remove-directory-at",
    "[method]descriptor.unlink-file-at",
];
const LINK: &str = "[method]descriptor.symlink-at";
const HARD_LINK: &str = "[method]descriptor.link-at";
const MOVE: &str = "[method]descriptor.rename-at";
/// Denied only with certain flags.
const OPEN: &str = "[method]descriptor.open-at";
const READ: &str = "[method]descriptor.read-via-stream";
const LIST: &str = "[method]descriptor.read-directory";
const STAT: &str = "[method]descriptor.stat-at";
const HASH: &str = "[method]descriptor.metadata-hash-at";
const READ_LINK: &str = "[method]descriptor.readlink-at";

pub(super) fn link<C: Caller>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    let mut types = linker.instance(&format!("wasi:filesystem/types@{LINKED_WASI_2}"))?;
    of_2(&mut types)?;
    kept_of_2(&mut types)?;
    let mut types = linker.instance(&format!("wasi:filesystem/types@{LINKED_WASI_3}"))?;
    of_3(&mut types)?;
    by_path_3(&mut types)
}

fn call(function: &str, path: &str) -> TracedCall {
    TracedCall::of(Package::Files, "types", function, format_args!("{path:?}"))
}

/// Defines `what` for the flags of one version's types.
macro_rules! of_flags {
    ($open:ident, $descriptor:ident) => {
        /// Distinguishes denied changes from attempts to leave the folder.
        fn what(how: $open, flags: $descriptor) -> &'static Denial {
            let makes = $open::CREATE | $open::EXCLUSIVE | $open::TRUNCATE;
            let writes = $descriptor::WRITE | $descriptor::MUTATE_DIRECTORY;
            if how.intersects(makes) || flags.intersects(writes) {
                &CHANGE
            } else {
                &LEAVE
            }
        }
    };
}

fn of_2<C: Caller>(types: &mut Types<'_, C>) -> wasmtime::Result<()> {
    use p2::bindings::filesystem::types::{
        DescriptorFlags, ErrorCode, HostDescriptor, OpenFlags, PathFlags,
    };
    of_flags!(OpenFlags, DescriptorFlags);

    fn refuse<C: Caller, P: ComponentNamedList + Lift + 'static>(
        types: &mut Types<'_, C>,
        name: &'static str,
        path: fn(&P) -> &str,
    ) -> wasmtime::Result<()> {
        types.func_wrap(name, move |store: StoreContextMut<'_, C>, params: P| {
            let path = path(&params);
            let code = ErrorCode::NotPermitted;
            let denied = store.data().refuse(&CHANGE, path, code, call(name, path));
            Ok((Err::<(), _>(denied),))
        })
    }
    for name in BY_PATH {
        refuse::<C, One>(types, name, |(_, path)| path)?;
    }
    refuse::<C, Two>(types, LINK, |(_, _, path)| path)?;
    refuse::<C, MoveArguments>(types, MOVE, |(_, path, _, _)| path)?;
    refuse::<C, LinkArguments<PathFlags>>(types, HARD_LINK, |(_, _, path, _, _)| path)?;
    types.func_wrap_async(
        OPEN,
        |mut store: StoreContextMut<'_, C>,
         (folder, links, path, how, flags): Open<PathFlags, OpenFlags, DescriptorFlags>| {
            Box::new(async move {
                let call = call(OPEN, &path);
                let opened = if store.data_mut().may_open() {
                    let mut files = store.data_mut().filesystem();
                    let opened = files.open_at(folder, links, path.clone(), how, flags).await;
                    opened.map(Ok).or_else(|error| error.downcast().map(Err))?
                } else {
                    Err(ErrorCode::InsufficientMemory)
                };
                match opened {
                    Err(denied @ ErrorCode::NotPermitted) => {
                        store.data().refuse(what(how, flags), &path, denied, call);
                    }
                    _ => call.answered(&opened),
                }
                Ok((opened,))
            })
        },
    )
}

/// Limits the host's memory that a guest uses for the folder: listings, and data that streams have
/// read.
fn kept_of_2<C: Caller>(types: &mut Types<'_, C>) -> wasmtime::Result<()> {
    use p2::bindings::filesystem::types::{ErrorCode, HostDescriptor};

    types.func_wrap(
        READ,
        |mut store: StoreContextMut<'_, C>, (file, from): (Resource<Descriptor>, u64)| {
            let call = TracedCall::of(Package::Files, "types", READ, format_args!("{from}"));
            let guest = store.data_mut();
            let read = if guest.holds::<DynInputStream>() < guest.budget().buffers {
                let read = guest.filesystem().read_via_stream(file, from);
                read.map(Ok).or_else(|error| error.downcast().map(Err))?
            } else {
                Err(ErrorCode::InsufficientMemory)
            };
            call.answered(&read);
            Ok((read,))
        },
    )?;
    types.func_wrap_async(
        LIST,
        |mut store: StoreContextMut<'_, C>, (folder,): (Resource<Descriptor>,)| {
            Box::new(async move {
                let call = TracedCall::of(Package::Files, "types", LIST, format_args!(""));
                let guest = store.data_mut();
                let listed = if guest.holds::<ReaddirIterator>() < LISTINGS {
                    let listed = guest.filesystem().read_directory(folder).await;
                    listed.map(Ok).or_else(|error| error.downcast().map(Err))?
                } else {
                    Err(ErrorCode::InsufficientMemory)
                };
                call.answered(&listed);
                Ok((listed,))
            })
        },
    )
}

fn of_3<C: Caller>(types: &mut Types<'_, C>) -> wasmtime::Result<()> {
    use p3::bindings::filesystem::types::{
        DescriptorFlags, ErrorCode, HostDescriptorWithStore, OpenFlags, PathFlags,
    };
    of_flags!(OpenFlags, DescriptorFlags);

    fn refuse<C: Caller, P: ComponentNamedList + Lift + Send + Sync + 'static>(
        types: &mut Types<'_, C>,
        name: &'static str,
        path: fn(&P) -> &str,
    ) -> wasmtime::Result<()> {
        types.func_wrap_concurrent(name, move |accessor: &Accessor<C>, params: P| {
            let path = path(&params);
            let (denied, call) = (ErrorCode::NotPermitted, call(name, path));
            let denied =
                accessor.with(|mut access| access.data_mut().refuse(&CHANGE, path, denied, call));
            Box::pin(async { Ok((Err::<(), _>(denied),)) })
        })
    }
    for name in BY_PATH {
        refuse::<C, One>(types, name, |(_, path)| path)?;
    }
    refuse::<C, Two>(types, LINK, |(_, _, path)| path)?;
    refuse::<C, MoveArguments>(types, MOVE, |(_, path, _, _)| path)?;
    refuse::<C, LinkArguments<PathFlags>>(types, HARD_LINK, |(_, _, path, _, _)| path)?;
    types.func_wrap_concurrent(
        OPEN,
        |accessor: &Accessor<C>,
         (folder, links, path, how, flags): Open<PathFlags, OpenFlags, DescriptorFlags>| {
            Box::pin(async move {
                let call = call(OPEN, &path);
                let opened = match path.len() {
                    ..=PATH => {
                        let named = path.clone();
                        let files = accessor.with_getter::<WasiFilesystem>(C::filesystem);
                        let opened =
                            WasiFilesystem::open_at(&files, folder, links, named, how, flags);
                        let opened = opened.await.map(Ok);
                        opened.or_else(|error| error.downcast().map(Err))?
                    }
                    _ => Err(ErrorCode::NameTooLong),
                };
                // Checked only now, because many files may have been opened concurrently.
                let opened = match opened {
                    Ok(file) => accessor.with(|mut access| {
                        keep(access.data_mut(), file, ErrorCode::InsufficientMemory)
                    })?,
                    refused => refused,
                };
                match &opened {
                    Err(ErrorCode::NotPermitted) => {
                        let denied = ErrorCode::NotPermitted;
                        accessor.with(|mut access| {
                            access
                                .data_mut()
                                .refuse(what(how, flags), &path, denied, call)
                        });
                    }
                    _ => call.answered(&opened),
                }
                Ok((opened,))
            })
        },
    )
}

/// Keeps a file that was opened, unless there are too many.
fn keep<E>(
    guest: &mut impl Caller,
    file: Resource<Descriptor>,
    full: E,
) -> wasmtime::Result<Result<Resource<Descriptor>, E>> {
    // The file is already in the count.
    if guest.holds_too_many_files() {
        guest.table().delete(file)?;
        return Ok(Err(full));
    }
    Ok(Ok(file))
}

/// Limits the path of each of these calls, because any number may be outstanding at once.
fn by_path_3<C: Caller>(types: &mut Types<'_, C>) -> wasmtime::Result<()> {
    use p3::bindings::filesystem::types::{ErrorCode, HostDescriptorWithStore, PathFlags};

    macro_rules! by_path {
        ($name:ident, $params:ty, |$files:ident, $($param:ident),+| $path:ident, $asked:expr) => {
            types.func_wrap_concurrent($name, |accessor: &Accessor<C>, params: $params| {
                Box::pin(async move {
                    let ($($param,)+) = params;
                    let call = call($name, &$path);
                    let answer = match $path.len() {
                        ..=PATH => {
                            let $files = &accessor.with_getter::<WasiFilesystem>(C::filesystem);
                            $asked.await.map(Ok).or_else(|error| error.downcast().map(Err))?
                        }
                        _ => Err(ErrorCode::NameTooLong),
                    };
                    call.answered(&answer);
                    Ok((answer,))
                })
            })?;
        };
    }
    by_path!(
        STAT,
        Linkable<PathFlags>,
        |files, folder, links, path| path,
        WasiFilesystem::stat_at(files, folder, links, path)
    );
    by_path!(
        HASH,
        Linkable<PathFlags>,
        |files, folder, links, path| path,
        WasiFilesystem::metadata_hash_at(files, folder, links, path)
    );
    by_path!(
        READ_LINK,
        One,
        |files, folder, path| path,
        WasiFilesystem::readlink_at(files, folder, path)
    );
    Ok(())
}
