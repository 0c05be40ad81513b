#include <new>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/core/log.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "rpc/core/core.hpp"

namespace amalgam::detail {

namespace {

/// A copy for the stream, as the names may end with their owner.
struct kept_name {
    std::string name;
    std::uint16_t provider;
    std::uint64_t number;
};

template <typename Names>
void remove_all(engine_core& core, const Names& which) noexcept {
    procedure_table& all = core.server().procedures();
    for (const auto& each : which) {
        const served_procedure* const now = all.find(each.name, each.provider);
        if (now == nullptr || (each.number != 0 && now->number != each.number)) continue;
        (void)all.remove(each.name, each.provider);
    }
}

/// False: out of memory.
bool remove_later(engine_core& core, std::span<const served_name> which) noexcept {
    try {
        std::vector<kept_name> names;
        names.reserve(which.size());
        for (const served_name& each : which)
            names.push_back({std::string(each.name), each.provider, each.number});
        auto remove = [&core, names = std::move(names)] { remove_all(core, names); };
        return core.run_later(remove);
    } catch (const std::bad_alloc&) {
        return false;
    }
}

}  // namespace

void end_serving(engine_core& core, std::span<const served_name> which) noexcept {
    if (which.empty()) return;
    if (!core.may_hop()) {
        if (!remove_later(core, which)) {
            log(log_level::warn, "rpc",
                "out of memory where a procedure was to end: it is served until its engine ends",
                {{"procedure", which.front().name}});
        }
        return;
    }
    try {
        core.on_stream([&] { remove_all(core, which); });
    } catch (const std::exception&) {
        return;  // A stopped engine serves nothing.
    }
    core.streams().reap();
}

}  // namespace amalgam::detail
