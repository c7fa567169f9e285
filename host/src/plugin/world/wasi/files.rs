//! A folder is lent to be read: what would change it is refused.

use super::shown::{Call, Package};
use super::{Refused, V2, V3};
use crate::plugin::guest::Guest;
use wasmtime::StoreContextMut;
use wasmtime::component::{Accessor, ComponentNamedList, Lift, Linker, LinkerInstance, Resource};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystem, WasiFilesystemView};
use wasmtime_wasi::{p2, p3};

const CHANGE: Refused = ("change what it reads", "no option");
const LEAVE: Refused = ("leave the folder that it reads", "no option");

type Types<'a> = LinkerInstance<'a, Guest>;
type One = (Resource<Descriptor>, String);
type Two = (Resource<Descriptor>, String, String);
type Moved = (Resource<Descriptor>, String, Resource<Descriptor>, String);
type Linked<P> = (
    Resource<Descriptor>,
    P,
    String,
    Resource<Descriptor>,
    String,
);
/// What is opened, and with what flags of each version.
type Open<P, O, D> = (Resource<Descriptor>, P, String, O, D);

const BY_PATH: [&str; 3] = [
    "[method]descriptor.create-directory-at",
    "[method]descriptor.remove-directory-at",
    "[method]descriptor.unlink-file-at",
];
const LINK: &str = "[method]descriptor.symlink-at";
const HARD_LINK: &str = "[method]descriptor.link-at";
const MOVE: &str = "[method]descriptor.rename-at";
/// With some flags alone.
const OPEN: &str = "[method]descriptor.open-at";

pub(super) fn lend(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    of_2(&mut linker.instance(&format!("wasi:filesystem/types@{V2}"))?)?;
    of_3(&mut linker.instance(&format!("wasi:filesystem/types@{V3}"))?)
}

fn call(function: &str, path: &str) -> Call {
    Call::of(Package::Files, "types", function, format_args!("{path:?}"))
}

/// The same names in each version's own types.
macro_rules! of_flags {
    ($open:ident, $descriptor:ident) => {
        /// Of all reasons for it these are for changes; the other is a way out.
        fn what(how: $open, flags: $descriptor) -> Refused {
            let makes = $open::CREATE | $open::EXCLUSIVE | $open::TRUNCATE;
            let writes = $descriptor::WRITE | $descriptor::MUTATE_DIRECTORY;
            match how.intersects(makes) || flags.intersects(writes) {
                true => CHANGE,
                false => LEAVE,
            }
        }
    };
}

fn of_2(types: &mut Types<'_>) -> wasmtime::Result<()> {
    use p2::bindings::filesystem::types::{
        DescriptorFlags, ErrorCode, HostDescriptor, OpenFlags, PathFlags,
    };
    of_flags!(OpenFlags, DescriptorFlags);

    fn refuse<P: ComponentNamedList + Lift + 'static>(
        types: &mut Types<'_>,
        name: &'static str,
        path: fn(&P) -> &str,
    ) -> wasmtime::Result<()> {
        types.func_wrap(name, move |store: StoreContextMut<'_, Guest>, params: P| {
            let path = path(&params);
            let denied = ErrorCode::NotPermitted;
            let denied = store.data().refuse(CHANGE, path, denied, call(name, path));
            Ok((Err::<(), _>(denied),))
        })
    }
    for name in BY_PATH {
        refuse::<One>(types, name, |(_, path)| path)?;
    }
    refuse::<Two>(types, LINK, |(_, _, path)| path)?;
    refuse::<Moved>(types, MOVE, |(_, path, _, _)| path)?;
    refuse::<Linked<PathFlags>>(types, HARD_LINK, |(_, _, path, _, _)| path)?;
    types.func_wrap_async(
        OPEN,
        |mut store: StoreContextMut<'_, Guest>,
         (folder, links, path, how, flags): Open<PathFlags, OpenFlags, DescriptorFlags>| {
            Box::new(async move {
                let call = call(OPEN, &path);
                let mut files = store.data_mut().filesystem();
                let opened = files.open_at(folder, links, path.clone(), how, flags).await;
                let opened = opened.map(Ok).or_else(|error| error.downcast().map(Err))?;
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

fn of_3(types: &mut Types<'_>) -> wasmtime::Result<()> {
    use p3::bindings::filesystem::types::{
        DescriptorFlags, ErrorCode, HostDescriptorWithStore, OpenFlags, PathFlags,
    };
    of_flags!(OpenFlags, DescriptorFlags);

    fn refuse<P: ComponentNamedList + Lift + Send + Sync + 'static>(
        types: &mut Types<'_>,
        name: &'static str,
        path: fn(&P) -> &str,
    ) -> wasmtime::Result<()> {
        types.func_wrap_concurrent(name, move |accessor: &Accessor<Guest>, params: P| {
            let path = path(&params);
            let (denied, call) = (ErrorCode::NotPermitted, call(name, path));
            let denied =
                accessor.with(|mut access| access.data_mut().refuse(CHANGE, path, denied, call));
            Box::pin(async { Ok((Err::<(), _>(denied),)) })
        })
    }
    for name in BY_PATH {
        refuse::<One>(types, name, |(_, path)| path)?;
    }
    refuse::<Two>(types, LINK, |(_, _, path)| path)?;
    refuse::<Moved>(types, MOVE, |(_, path, _, _)| path)?;
    refuse::<Linked<PathFlags>>(types, HARD_LINK, |(_, _, path, _, _)| path)?;
    types.func_wrap_concurrent(
        OPEN,
        |accessor: &Accessor<Guest>,
         (folder, links, path, how, flags): Open<PathFlags, OpenFlags, DescriptorFlags>| {
            Box::pin(async move {
                let call = call(OPEN, &path);
                let files = accessor.with_getter::<WasiFilesystem>(Guest::filesystem);
                let opened =
                    WasiFilesystem::open_at(&files, folder, links, path.clone(), how, flags).await;
                let opened = opened.map(Ok).or_else(|error| error.downcast().map(Err))?;
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
