#include "tasks/streams/machine.hpp"

#include <fmt/format.h>

#include <amalgam/core/status.hpp>

#ifdef AMALGAM_HAS_HWLOC
#include <hwloc.h>
#endif

namespace amalgam::detail {

#ifdef AMALGAM_HAS_HWLOC

machine::machine() {
    hwloc_topology_t made = nullptr;
    if (::hwloc_topology_init(&made) != 0 || ::hwloc_topology_load(made) != 0) {
        if (made != nullptr) ::hwloc_topology_destroy(made);
        throw error(errc::unsupported,
                    "hwloc cannot explore this machine, so CPUs cannot be named by socket:, numa: "
                    "or core:; use their numbers, as \"0-3\"");
    }
    topology_ = made;
}

machine::~machine() {
    ::hwloc_topology_destroy(static_cast<hwloc_topology_t>(topology_));
}

void machine::add(std::string_view kind, unsigned number, cpu_set& to) const {
    const auto topology = static_cast<hwloc_topology_t>(topology_);
    const hwloc_obj_type_t type = kind == "core"   ? HWLOC_OBJ_CORE
                                  : kind == "numa" ? HWLOC_OBJ_NUMANODE
                                                   : HWLOC_OBJ_PACKAGE;
    const hwloc_obj_t found = ::hwloc_get_obj_by_type(topology, type, number);
    if (found == nullptr || found->cpuset == nullptr) {
        throw error(errc::invalid,
                    fmt::format("this machine has no {}:{}, expected 0 to {}", kind, number,
                                ::hwloc_get_nbobjs_by_type(topology, type) - 1));
    }
    for (int id = ::hwloc_bitmap_first(found->cpuset); id >= 0;
         id = ::hwloc_bitmap_next(found->cpuset, id)) {
        to.add(static_cast<unsigned>(id));
        if (kind == "core") return;
    }
}

#else

machine::machine() {
    throw error(
        errc::unsupported,
        "Amalgam was built without hwloc, so CPUs cannot be named by socket:, numa: or "
        "core:; use their numbers, as \"0-3\", or build it where libhwloc-dev is installed");
}
machine::~machine() = default;
void machine::add(std::string_view, unsigned, cpu_set&) const {}

#endif

}  // namespace amalgam::detail
