#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/context/streams.hpp"

// Pools and streams that come and go while the engine runs.

namespace amalgam::detail {

namespace {

constexpr std::size_t most_streams = 1024;

[[noreturn]] void refuse(errc code, std::string_view kind, std::string_view name,
                         std::string_view act, std::string_view why) {
    throw error(
        code, printable_name(fmt::format("the {} \"{}\" cannot be {}: {}", kind, name, act, why)));
}

bool lists(const stream_options& stream, std::string_view pool) {
    return std::find(stream.pools.begin(), stream.pools.end(), pool) != stream.pools.end();
}

}  // namespace

std::shared_ptr<stream_group> engine_streams::added(std::string_view name) const noexcept {
    for (const auto& each : added_) {
        if (each->name() == name) return each;
    }
    return nullptr;
}

/// The lock is held.
std::vector<engine_streams::serving_stream> engine_streams::serving() {
    std::vector<serving_stream> all;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
        if (removed_[i]) continue;
        all.push_back({options_->streams.each[i], streams_[i].get(),
                       i == 0 ? nullptr : &removed_[i], nullptr});
    }
    if (second_)
        all.push_back({{.name = std::string(second_->name())}, second_.get(), nullptr, nullptr});
    for (const auto& group : added_) {
        for (stream_group::member& each : group->streams()) {
            if (each.removed) continue;
            all.push_back({{.name = std::string(each.what->name()), .pools = {group->name()}},
                           each.what.get(),
                           &each.removed,
                           group});
        }
    }
    for (const auto& each : more_) {
        if (!each->removed) all.push_back({each->how, each->what.get(), &each->removed, each});
    }
    return all;
}

engine_options engine_streams::effective() {
    const std::lock_guard hold(lock_);
    engine_options now = *options_;
    // Their default pool is that of the second stream, which may have been removed.
    if (now.handlers.empty() && removed_.size() > 1 && removed_[1] &&
        now.progress.by == progress_by::own_stream) {
        now.handlers = now.streams.each[1].pools.front();
    }
    now.streams.each.clear();
    for (serving_stream& each : serving())
        now.streams.each.push_back(std::move(each.how));
    for (const auto& each : added_)
        now.pools.push_back(each->options());
    return now;
}

/// The lock is held.
void engine_streams::check_room(std::string_view what, std::size_t more) {
    if (const std::size_t all = serving().size() + more; all > most_streams) {
        throw error(errc::invalid,
                    fmt::format("{} cannot be added: the engine would have {} streams, expected at "
                                "most {}",
                                what, all, most_streams));
    }
}

void engine_streams::add_pool(const pool_options& how, unsigned streams) {
    const auto refused = [&](std::string_view why) {
        refuse(errc::invalid, "pool", how.name, "added", why);
    };
    if (how.name.empty()) refused("it has no name; example: \"io\"");
    if (streams == 0 || streams > most_streams)
        refused(
            fmt::format("it has {} streams, expected 1 to {}; example: 2", streams, most_streams));
    if (driven_by_ != nullptr) refused("an engine in virtual time has only one stream");
    if (how.kind == pool_kind::fifo && streams > 1)
        refused("a fifo pool is for one stream; use pool_kind::shared_fifo");
    const auto group = std::make_shared<stream_group>(
        how, streams, options_->spin, fmt::format("{}-{}", options_->name, how.name));
    const std::lock_guard hold(lock_);
    if (look_up(how.name) != nullptr || (second_ && second_->name() == how.name))
        refused("there is one of that name already; choose another");
    added_.reserve(added_.size() + 1);
    groups_.push_back(group);
    added_.push_back(group);
}

bool engine_streams::was_added(std::string_view name) {
    const std::lock_guard hold(lock_);
    return added(name) != nullptr;
}

bool engine_streams::remove_pool(std::string_view name) {
    {
        const std::lock_guard hold(lock_);
        const auto which = std::find_if(added_.begin(), added_.end(),
                                        [name](const auto& each) { return each->name() == name; });
        if (which == added_.end()) return false;
        const auto refused = [&](std::string_view why) {
            refuse(errc::in_use, "pool", name, "removed", why);
        };
        long owners = 2;  // Both lists here.
        for (const auto& each : more_) {
            if (!lists(each->how, name)) continue;
            if (!each->removed)
                refused(fmt::format("the stream \"{}\" was added to it; remove that first",
                                    each->how.name));
            ++owners;
        }
        const bool defined = which->use_count() > owners;
        const bool runs = (*which)->work().ults() != 0 || !(*which)->work().empty();
        // A call that runs keeps its procedure, undefined or not.
        if (defined && runs)
            refused(
                "calls run there; try again when they have ended, and if procedures are "
                "defined in it, undefine or move them");
        if (defined) refused("procedures are defined in it; undefine or move them");
        if (runs) refused("something runs there; try again later");
        added_.erase(which);
    }
    reap();
    return true;
}

std::string engine_streams::add_stream(stream_options how) {
    if (how.name.empty() && !how.pools.empty())
        how.name = fmt::format("{}-{}", options_->name, how.pools.front());
    const auto refused = [&](std::string_view why) {
        refuse(errc::invalid, "stream", how.name, "added", why);
    };
    if (driven_by_ != nullptr) refused("an engine in virtual time has only one stream");
    if (how.pools.empty())
        refused(
            "it serves no pool, expected names of pools that are there; to add both, use "
            "add_pool(); example: {.pools = {\"io\"}}");
    if (std::set<std::string_view>(how.pools.begin(), how.pools.end()).size() != how.pools.size())
        refused("it lists a pool twice, expected each once; example: {.pools = {\"io\"}}");
    if (how.cpu >= 0 && !how.cpus.empty())
        refused("it has cpu and cpus, expected one of them; example: {.cpus = cpu_set(\"0-3\")}");
    const std::lock_guard hold(lock_);
    check_room(fmt::format("the stream \"{}\"", printable_name(how.name)), 1);
    const auto fresh = std::make_shared<added_stream>();
    for (const std::string& each : how.pools) {
        if (known(each).access() == pool_access::one_stream)
            refused(
                fmt::format("the pool \"{}\" is for the one stream that serves it, expected "
                            "pools of another kind than fifo; example: \"shared_fifo\"",
                            each));
        if (auto group = added(each)) fresh->serves.push_back(std::move(group));
    }
    fresh->how = std::move(how);
    more_.reserve(more_.size() + 1);
    fresh->what = make_stream(fresh->how, false);
    more_.push_back(fresh);
    return fresh->how.name;
}

/// Marks the newest stream of that name as removed. Without `what`: there is none.
engine_streams::serving_stream engine_streams::begin_removal(std::string_view name) {
    const auto refused = [&](errc code, std::string_view why) {
        refuse(code, "stream", name, "removed", why);
    };
    const std::lock_guard hold(lock_);
    std::vector<serving_stream> all = serving();
    const auto which = std::find_if(all.rbegin(), all.rend(),
                                    [name](const auto& each) { return each.how.name == name; });
    if (which == all.rend()) return {};
    if (which->what == first_)
        refused(errc::invalid, "it makes progress on the engine's ports; remove another");
    if (which->what == execution_stream::current())
        refused(errc::invalid,
                "it runs the caller; remove it from elsewhere, such as a handler on another "
                "stream");
    if (which->how.pools.empty())
        refused(errc::in_use, "nobody else serves the pool that it has for itself");
    for (const std::string& pool : which->how.pools) {
        const bool shared = std::any_of(all.begin(), all.end(), [&](const auto& each) {
            return each.what != which->what && lists(each.how, pool);
        });
        if (!shared)
            refused(errc::in_use, fmt::format("nobody else serves the pool \"{}\"; add another "
                                              "stream to it first",
                                              pool));
    }
    *which->removed = true;
    return std::move(*which);
}

std::optional<stream_options> engine_streams::remove_stream(std::string_view name) {
    if (execution_stream::current() != nullptr && !this_task::in_ult())
        refuse(errc::invalid, "stream", name, "removed",
               "inline handlers, call_then() functions and tasklets cannot wait for its end; do it "
               "in a ULT, or in a thread of yours");
    serving_stream which = begin_removal(name);
    if (which.what == nullptr) return std::nullopt;
    try {
        which.what->stop();  // Without the lock, which running work may need.
    } catch (...) {
        const std::lock_guard hold(lock_);
        *which.removed = false;
        throw;
    }
    {
        const std::lock_guard hold(lock_);
        // `which` still has it.
        more_.erase(std::remove(more_.begin(), more_.end(), which.keeps), more_.end());
    }
    which.keeps.reset();
    reap();
    return std::move(which.how);
}

}  // namespace amalgam::detail
