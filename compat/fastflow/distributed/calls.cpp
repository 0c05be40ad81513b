#include <cstring>
#include <utility>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/call_context.hpp>

#include "run.hpp"

// All of this runs on the engine's stream.
namespace ff::detail {
namespace {

template <typename T>
T get(const std::byte* at) {
    T value = 0;
    for (std::size_t i = 0; i != sizeof value; ++i)
        value = static_cast<T>(value | static_cast<T>(std::to_integer<T>(at[i]) << (8 * i)));
    return value;
}
constexpr std::size_t most_early = 10000;
constexpr std::size_t longest_reason = 2000;

}  // namespace

far_group* distributed_part::sender(const amalgam::peer& who) {
    for (const auto& [name, each] : groups_)
        if (each->from == who) return each.get();
    return nullptr;
}

far_edge* distributed_part::edge_at(std::uint32_t number, bool out) {
    if (number >= edges_.size() || edges_[number] == nullptr || edges_[number]->out != out)
        return nullptr;
    return edges_[number].get();
}

/// The queue whose other end the caller has. Null: it has not.
far_edge* distributed_part::edge_to(std::uint32_t number) {
    far_edge* const found = edge_at(number, true);
    const bool its = found != nullptr && found->there.to == amalgam::call_context::current().from();
    return its ? found : nullptr;
}

void distributed_part::take_join(const std::string& from, std::uint64_t graph,
                                 const std::vector<std::uint64_t>& windows) {
    const std::lock_guard guard(lock_);
    const auto found = groups_.find(from);
    if (graph != graph_ || found == groups_.end() || !found->second->sends)
        throw amalgam::error(amalgam::errc::mismatch,
                             "group " + all_.mine +
                                 " was built from another program, other arguments or another "
                                 "configuration file, expected the same in all groups");
    // It may be in its next run already: it asks again.
    if (found->second->ended)
        throw amalgam::error(amalgam::errc::unavailable,
                             "group " + all_.mine + " has not ended its last run");
    if (found->second->from)
        throw amalgam::error(amalgam::errc::denied, "a group " + from + " has joined already");
    std::size_t next = 0;
    for (const auto& each : edges_)
        if (each != nullptr && !each->out && &each->there == found->second.get())
            each->window = next < windows.size() ? windows[next++] : 1;
    found->second->from = amalgam::call_context::current().from();
    changed_.notify_all();
}

/// Calls `take` for each item and mark, until it returns false. What is no batch ends the run.
template <typename Take>
bool distributed_part::each_frame(far_group& from, amalgam::const_bytes frames, Take take) {
    const std::byte* at = frames.data();
    std::size_t left = frames.size();
    while (left != 0) {
        const auto size = left >= wire::header_bytes ? get<std::uint64_t>(at + 8) : 0;
        far_edge* const edge =
            left >= wire::header_bytes ? edge_at(get<std::uint32_t>(at), false) : nullptr;
        if (edge == nullptr || &edge->there != &from || size > left - wire::header_bytes ||
            !edge->knows(get<std::uint32_t>(at + 4))) {
            fail("group " + from.name + " at " + from.address +
                 " sent something that is no batch of items");
            return false;
        }
        if (!take(*edge, get<std::uint32_t>(at + 4), at + wire::header_bytes,
                  static_cast<std::size_t>(size)))
            return false;
        at += wire::header_bytes + size;
        left -= wire::header_bytes + static_cast<std::size_t>(size);
    }
    return true;
}

/// False, and the run has ended: there was no room for it.
bool distributed_part::count(far_edge& edge, std::uint64_t batch, std::uint32_t mark,
                             std::size_t size) {
    if (edge.within_credit(batch, mark, size)) return true;
    fail("group " + edge.there.name + " at " + edge.there.address +
         " sent more than there was room for, " + std::to_string(edge.window) + " items and " +
         std::to_string(far_edge::most_bytes >> 20) + " MiB on one channel");
    return false;
}

/// Batches are numbered: large ones are fetched, and others overtake them. This one came before its
/// turn.
void distributed_part::keep(far_group& from, std::uint64_t number, std::vector<std::byte> frames) {
    auto& waiting = early_[&from].batches;
    if (number <= from.expected || waiting.size() >= most_early || waiting.count(number) != 0)
        return fail("group " + from.name + " at " + from.address + " sent a batch out of order");
    const bool all = each_frame(
        from, frames, [&](far_edge& to, std::uint32_t mark, const std::byte*, std::size_t size) {
            return count(to, number, mark, size);
        });
    if (all) waiting.emplace(number, std::move(frames));
}

void distributed_part::took(far_group& from) {
    ++from.expected;
    early& waiting = early_[&from];
    for (auto next = waiting.batches.find(from.expected); next != waiting.batches.end();
         next = waiting.batches.find(from.expected)) {
        each_frame(from, {next->second.data(), next->second.size()},
                   [](far_edge& to, std::uint32_t mark, const std::byte* bytes, std::size_t size) {
                       to.came(mark, bytes, size);
                       return true;
                   });
        waiting.batches.erase(next);
        ++from.expected;
    }
    if (!waiting.end || waiting.end->first != from.expected) return;
    auto end = std::exchange(waiting.end, std::nullopt);
    answer_end(from, std::move(end->second));
}

/// Calls `take` with the group whose call this is, if it has joined. No exception gets lost: so
/// would an item.
template <typename Take>
void distributed_part::from_sender(Take take) {
    far_group* const from = sender(amalgam::call_context::current().from());
    if (from == nullptr || failed_) return;
    try {
        take(*from);
    } catch (const std::exception& why) {
        fail("cannot take what group " + from->name + " at " + from->address +
             " sent: " + why.what());
    }
}

void distributed_part::take_batch(std::uint64_t number, amalgam::const_bytes frames) {
    from_sender([&](far_group& from) {
        if (number != from.expected || from.ended)
            return keep(from, number, {frames.begin(), frames.end()});
        const bool all = each_frame(
            from, frames,
            [&](far_edge& to, std::uint32_t mark, const std::byte* bytes, std::size_t size) {
                if (!count(to, number, mark, size)) return false;
                to.came(mark, bytes, size);
                return true;
            });
        if (all) took(from);
    });
}

void distributed_part::take_item(std::uint64_t number, std::uint32_t edge,
                                 amalgam::const_bytes bytes) {
    from_sender([&](far_group& from) {
        far_edge* const to = edge_at(edge, false);
        if (to == nullptr || &to->there != &from)
            return fail("group " + from.name + " at " + from.address +
                        " sent an item to a node that it is not connected to");
        if (number == from.expected && !from.ended) {
            if (!count(*to, number, 0, bytes.size())) return;
            to->came(0, bytes.data(), bytes.size());
            return took(from);
        }
        std::vector<std::byte> whole(wire::header_bytes);
        for (std::size_t i = 0; i != 4; ++i)
            whole[i] = static_cast<std::byte>(edge >> (8 * i));
        for (std::size_t i = 0; i != 8; ++i)
            whole[8 + i] =
                static_cast<std::byte>(static_cast<std::uint64_t>(bytes.size()) >> (8 * i));
        whole.insert(whole.end(), bytes.begin(), bytes.end());
        keep(from, number, std::move(whole));
    });
}

/// First the answer: then this process may end.
void distributed_part::answer_end(far_group& from, amalgam::responder<void>&& done) {
    done();
    for (const auto& each : edges_)
        if (each != nullptr && !each->out && &each->there == &from) each->over();
    const std::lock_guard guard(lock_);
    from.ended = true;
    changed_.notify_all();
}

void distributed_part::take_end(amalgam::responder<void> done, std::uint64_t batches) {
    far_group* const from = sender(done.call().from());
    if (from == nullptr) return done.fail("it has not joined");
    early& waiting = early_[from];
    if (from->ended || waiting.end || batches < from->expected) {
        done.fail("it ended after more batches, or has ended already");
        return fail("group " + from->name + " at " + from->address + " ended twice, or after " +
                    std::to_string(batches) + " batches of " + std::to_string(from->expected));
    }
    if (batches == from->expected) return answer_end(*from, std::move(done));
    waiting.end.emplace(batches, std::move(done));
}

void distributed_part::take_failed(const std::string& why) {
    const amalgam::peer who = amalgam::call_context::current().from();
    for (const auto& [name, each] : groups_)
        if (each->from == who || each->to == who)
            return fail("group " + name + " at " + each->address +
                        " failed: " + why.substr(0, longest_reason));
}

void distributed_part::lose(const amalgam::peer& who, amalgam::status why) {
    for (const auto& [name, each] : groups_) {
        {
            const std::lock_guard guard(lock_);
            const bool as_sender = each->from == who && !each->ended;
            const bool as_receiver = each->to == who && !each->took_all;
            if (!as_sender && !as_receiver) continue;
        }
        return fail("group " + name + " at " + each->address +
                    " is lost before the end of the stream (" +
                    std::string(amalgam::name(why.code)) +
                    "); its last output may say why. Start all groups again");
    }
}

}  // namespace ff::detail
