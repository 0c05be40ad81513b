#include "tasks/streams/machine.hpp"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/status.hpp>

#ifdef AMALGAM_HAS_HWLOC
#include <dlfcn.h>
#include <hwloc.h>
#endif

namespace amalgam::detail {

bool machine::has_kind(std::string_view kind) noexcept {
    constexpr std::string_view all[] = {"socket", "numa", "core", "whole_core", "thread"};
    return std::find(std::begin(all), std::end(all), kind) != std::end(all);
}

#ifdef AMALGAM_HAS_HWLOC

namespace {

#ifdef AMALGAM_HWLOC_FILE
/// By the first name, and never closed: hwloc and what it needs would take a tenth of the start of
/// every program, and few name CPUs.
void* load_hwloc() noexcept {
    return ::dlopen(AMALGAM_HWLOC_FILE, RTLD_LAZY | RTLD_LOCAL);
}

/// What the loader says of the call before this.
std::string why_not() {
    const char* const text = ::dlerror();
    return text != nullptr ? text : AMALGAM_HWLOC_FILE;
}

void* find(void* library, const char* name) {
    void* const found = library == nullptr ? nullptr : ::dlsym(library, name);
    if (found != nullptr) return found;
    throw error(errc::unsupported,
                fmt::format("CPUs cannot be named by socket:, numa:, core:, whole_core: or thread: "
                            "here, as hwloc cannot be loaded: {}; use their numbers, as \"0-3\", "
                            "or, if it is missing, install hwloc; example: apt install libhwloc15",
                            why_not()));
}

#define AMALGAM_HWLOC(name) reinterpret_cast<decltype(::name)*>(find(library, #name))
#else
void* load_hwloc() noexcept {
    return nullptr;
}

#define AMALGAM_HWLOC(name) &::name
#endif

/// Held while hwloc is loaded, and while it explores the machine, as both lock: a child of fork()
/// would wait for ever for another thread, or end within a loader that was half done.
constinit std::mutex hwloc_lock;
constinit fork_handlers hwloc_handlers([] { hwloc_lock.lock(); }, [] { hwloc_lock.unlock(); },
                                       [] { hwloc_lock.unlock(); });

/// Those that are called.
struct hwloc_functions {
    void* const library = load_hwloc();
    decltype(::hwloc_topology_init)* const init = AMALGAM_HWLOC(hwloc_topology_init);
    decltype(::hwloc_topology_load)* const load = AMALGAM_HWLOC(hwloc_topology_load);
    decltype(::hwloc_topology_destroy)* const destroy = AMALGAM_HWLOC(hwloc_topology_destroy);
    decltype(::hwloc_get_type_depth)* const depth_of = AMALGAM_HWLOC(hwloc_get_type_depth);
    decltype(::hwloc_get_nbobjs_by_depth)* const count_at =
        AMALGAM_HWLOC(hwloc_get_nbobjs_by_depth);
    decltype(::hwloc_get_obj_by_depth)* const object_at = AMALGAM_HWLOC(hwloc_get_obj_by_depth);
    decltype(::hwloc_bitmap_next)* const next_in = AMALGAM_HWLOC(hwloc_bitmap_next);
};
#undef AMALGAM_HWLOC

constinit std::optional<hwloc_functions> loaded_hwloc;  // Under the lock; never changes again.

hwloc_obj_type_t type_of(std::string_view kind) noexcept {
    return kind == "thread"   ? HWLOC_OBJ_PU
           : kind == "numa"   ? HWLOC_OBJ_NUMANODE
           : kind == "socket" ? HWLOC_OBJ_PACKAGE
                              : HWLOC_OBJ_CORE;
}

}  // namespace

machine::machine() {
    if (!hwloc_handlers.watch()) throw std::bad_alloc();
    const std::lock_guard hold(hwloc_lock);
    if (!loaded_hwloc) loaded_hwloc.emplace();
    const hwloc_functions& hwloc = *loaded_hwloc;
    hwloc_topology_t made = nullptr;
    if (hwloc.init(&made) != 0 || hwloc.load(made) != 0) {
        if (made != nullptr) hwloc.destroy(made);
        throw error(errc::unsupported,
                    "hwloc cannot explore this machine, so CPUs cannot be named by socket:, numa:, "
                    "core:, whole_core: or thread:; use their numbers, as \"0-3\"");
    }
    topology_ = made;
}

machine::~machine() {
    const std::lock_guard hold(hwloc_lock);
    loaded_hwloc->destroy(static_cast<hwloc_topology_t>(topology_));
}

void machine::add(std::string_view kind, unsigned number, cpu_set& to) const {
    const hwloc_functions& hwloc = *loaded_hwloc;
    const auto topology = static_cast<hwloc_topology_t>(topology_);
    const int depth = hwloc.depth_of(topology, type_of(kind));
    const hwloc_obj_t found = hwloc.object_at(topology, depth, number);
    if (found == nullptr || found->cpuset == nullptr) {
        throw error(errc::invalid,
                    fmt::format("this machine has no {}:{}, expected 0 to {}", kind, number,
                                static_cast<int>(hwloc.count_at(topology, depth)) - 1));
    }
    constexpr int before_all = -1;
    for (int id = hwloc.next_in(found->cpuset, before_all); id >= 0;
         id = hwloc.next_in(found->cpuset, id)) {
        to.add(static_cast<unsigned>(id));
        if (kind == "core") return;
    }
}

#else

machine::machine() {
    throw error(errc::unsupported,
                "Amalgam was built without hwloc, so CPUs cannot be named by socket:, numa:, "
                "core:, whole_core: or thread:; use their numbers, as \"0-3\", or build it where "
                "libhwloc-dev is installed");
}
machine::~machine() = default;
void machine::add(std::string_view, unsigned, cpu_set&) const {}

#endif

}  // namespace amalgam::detail
