#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <typeinfo>

#include <cxxabi.h>
#include <fmt/format.h>

#include <amalgam/core/detail/has_type.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/describe.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/scheduler.hpp>

#include "tasks/debug/write_text.hpp"
#include "tasks/dispatch/registry.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/streams/stream.hpp"

namespace amalgam {

namespace {

std::string type_name(const std::type_info& of) {
    int failed = 0;
    const std::unique_ptr<char, decltype(&std::free)> full(
        abi::__cxa_demangle(of.name(), nullptr, nullptr, &failed), &std::free);
    std::string text = full ? full.get() : of.name();
    for (const std::string_view ours : {"amalgam::", "(anonymous namespace)::"}) {
        if (text.starts_with(ours)) text.erase(0, ours.size());
    }
    return text;
}

template <typename Polymorphic>
std::string class_of(const Polymorphic& what) {
    return detail::has_type(what) ? type_name(typeid(what)) : "a class without RTTI";
}

std::string without_servers(const pool& what) {
    return fmt::format("{} {}: {} ready, {} ULTs", class_of(what), static_cast<const void*>(&what),
                       what.size(), what.ults());
}

stream_info look_at(detail::stream& at) {
    stream_info one;
    one.id = &at.owner();
    one.name = at.options().name;
    one.rank = at.rank();
    one.state = at.state();
    one.driven = at.options().driven;
    one.cpus = at.cpus();
    if (const detail::ult_core* const running = at.runs().running_seen())
        one.running = running->name_seen();
    one.scheduler = type_name(at.schedulers().type_seen());
    one.posted = at.schedulers().posted_seen();
    at.schedulers().pools().for_each_locked(
        [&](const pool& each) { one.pools.push_back(without_servers(each)); });
    return one;
}

std::string line_of(const stream_info& one) {
    std::string text = fmt::format("stream '{}' rank {}: {}", one.name, one.rank, name(one.state));
    if (one.driven) text += ", driven";
    if (!one.cpus.empty()) text += ", on CPUs " + one.cpus.text();
    if (!one.running.empty()) text += fmt::format(", runs ULT '{}'", one.running);
    text += ", " + one.scheduler;
    if (one.posted != 0) text += fmt::format(", {} posted", one.posted);
    return text;
}

std::string line_of_ult(std::string_view name, const void* id) {
    return fmt::format("ULT '{}' ({})", name, id);
}

/// False: the caller must not look into it, and nothing was added.
bool add_units(pool& what, std::string& text) {
    try {
        what.visit([&](const work_unit& each) { text += "    " + describe(each) + '\n'; });
        return true;
    } catch (const error& why) {
        if (why.code() != errc::invalid) throw;
        return false;
    }
}

void add_ready_ults(const pool& what, std::string& text) {
    const std::size_t queued = what.size();
    std::size_t told = 0;
    for (const ult_info& each : list_ults()) {
        if (each.home != &what || each.state != ult_state::ready) continue;
        text += "    " + line_of_ult(each.name, each.id) + '\n';
        ++told;
    }
    if (queued > told)
        text += fmt::format("    and {} more, seen only by a stream that serves the pool\n",
                            queued - told);
}

/// In the locking order of forks.cpp.
template <typename Look>
void with_streams_and_pools(Look look) {
    const std::lock_guard pools_stay(detail::served_pools::lock());
    detail::ult_registry::with_streams_and_stacks(look);
}

}  // namespace

const char* name(stream_state state) noexcept {
    constexpr std::array names{"running", "asleep", "stopping", "stopped"};
    const auto at = static_cast<std::size_t>(state);
    return at < names.size() ? names[at] : "unknown";
}

std::vector<stream_info> list_streams() {
    std::vector<stream_info> all;
    with_streams_and_pools([&](std::span<detail::dispatcher* const> streams) {
        for (const detail::dispatcher* each : streams) {
            if (!each->of().forked()) all.push_back(look_at(each->of()));
        }
    });
    std::sort(all.begin(), all.end(),
              [](const stream_info& a, const stream_info& b) { return a.rank < b.rank; });
    return all;
}

void print_streams(int fd) {
    std::string text;
    for (const stream_info& each : list_streams()) {
        text += line_of(each) + '\n';
        for (const std::string& its : each.pools)
            text += "    " + its + '\n';
    }
    detail::write_text(fd, text);
}

void print_pool(int fd, pool& what) {
    std::string text = describe(what) + '\n';
    if (!add_units(what, text)) add_ready_ults(what, text);
    detail::write_text(fd, text);
}

std::string describe(const pool& what) {
    std::string text = without_servers(what);
    const char* before = ", served by '";
    for (const std::string& each : servers_of(what)) {
        text += before + each + '\'';
        before = ", '";
    }
    return text;
}

std::vector<std::string> servers_of(const pool& what) {
    std::vector<std::string> names;
    detail::ult_registry::with_streams([&](std::span<detail::dispatcher* const> streams) {
        for (const detail::dispatcher* each : streams) {
            if (detail::ready_work::serves(*each, what)) names.push_back(each->of().options().name);
        }
    });
    return names;
}

std::string describe(const scheduler& what) {
    std::string text = class_of(what) + " over";
    for (const pool* each : what.pools())
        text += ' ' + class_of(*each) + fmt::format(" {}", static_cast<const void*>(each));
    return text;
}

std::string describe(const work_unit& what) {
    const void* const id = &what;
    switch (what.kind()) {
        case unit_kind::ult:
            return line_of_ult(static_cast<const detail::ult_core&>(what).name_seen(), id);
        case unit_kind::tasklet:
            return fmt::format("tasklet ({})", id);
        case unit_kind::other:
            break;
    }
    return fmt::format("unit ({})", id);
}

std::string describe(const execution_stream& what) {
    for (const stream_info& each : list_streams()) {
        if (each.id == &what) return line_of(each);
    }
    return fmt::format("stream '{}'", what.name());
}

}  // namespace amalgam
