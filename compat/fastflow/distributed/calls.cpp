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
constexpr std::uint32_t most_marks = 10;
constexpr std::size_t most_early = 10000;

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
    if (found->second->from)
        throw amalgam::error(amalgam::errc::denied, "a group " + from + " has joined already");
    std::size_t next = 0;
    for (const auto& each : edges_)
        if (each != nullptr && !each->out && &each->there == found->second.get() &&
            next < windows.size())
            each->window = windows[next++];
    found->second->from = amalgam::call_context::current().from();
    changed_.notify_all();
}

void distributed_part::take_frames(far_group& from, amalgam::const_bytes frames) {
    const std::byte* at = frames.data();
    std::size_t left = frames.size();
    while (left != 0) {
        const auto size = left >= wire::header_bytes ? get<std::uint64_t>(at + 8) : 0;
        far_edge* const edge =
            left >= wire::header_bytes ? edge_at(get<std::uint32_t>(at), false) : nullptr;
        if (edge == nullptr || &edge->there != &from || size > left - wire::header_bytes ||
            get<std::uint32_t>(at + 4) > most_marks)
            return fail("group " + from.name + " at " + from.address +
                        " sent something that is no batch of items");
        edge->came(get<std::uint32_t>(at + 4), at + wire::header_bytes,
                   static_cast<std::size_t>(size));
        at += wire::header_bytes + size;
        left -= wire::header_bytes + static_cast<std::size_t>(size);
    }
}

/// Batches are numbered: large ones are fetched, and others overtake them. False: not its turn.
bool distributed_part::in_turn(far_group& from, std::uint64_t number,
                               std::vector<std::byte> whole) {
    if (number == from.expected) return true;
    auto& waiting = early_[&from].batches;
    if (number < from.expected || waiting.size() >= most_early) {
        fail("group " + from.name + " at " + from.address + " sent a batch out of order");
        return false;
    }
    waiting.emplace(number, std::move(whole));
    return false;
}

void distributed_part::took(far_group& from) {
    ++from.expected;
    early& waiting = early_[&from];
    for (auto next = waiting.batches.find(from.expected); next != waiting.batches.end();
         next = waiting.batches.find(from.expected)) {
        take_frames(from, {next->second.data(), next->second.size()});
        waiting.batches.erase(next);
        ++from.expected;
    }
    for (auto& [batches, done] : waiting.ends) {
        if (batches != from.expected) continue;
        answer_end(from, done);
        waiting.ends.clear();
        break;
    }
}

void distributed_part::take_batch(std::uint64_t number, amalgam::const_bytes frames) {
    far_group* const from = sender(amalgam::call_context::current().from());
    if (from == nullptr || failed_) return;
    std::vector<std::byte> kept;
    if (number != from->expected) kept.assign(frames.begin(), frames.end());
    if (!in_turn(*from, number, std::move(kept))) return;
    take_frames(*from, frames);
    took(*from);
}

void distributed_part::take_item(std::uint64_t number, std::uint32_t edge,
                                 amalgam::const_bytes bytes) {
    far_group* const from = sender(amalgam::call_context::current().from());
    if (from == nullptr || failed_) return;
    far_edge* const to = edge_at(edge, false);
    if (to == nullptr || &to->there != from)
        return fail("group " + from->name + " at " + from->address +
                    " sent an item to a node that it is not connected to");
    if (number == from->expected) {
        to->came(0, bytes.data(), bytes.size());
        return took(*from);
    }
    std::vector<std::byte> whole(wire::header_bytes + bytes.size());
    for (std::size_t i = 0; i != 4; ++i)
        whole[i] = static_cast<std::byte>(edge >> (8 * i));
    for (std::size_t i = 0; i != 8; ++i)
        whole[8 + i] = static_cast<std::byte>(static_cast<std::uint64_t>(bytes.size()) >> (8 * i));
    if (!bytes.empty()) std::memcpy(whole.data() + wire::header_bytes, bytes.data(), bytes.size());
    in_turn(*from, number, std::move(whole));
}

/// First the answer: then this process may end.
void distributed_part::answer_end(far_group& from, amalgam::responder<void>& done) {
    done();
    const std::lock_guard guard(lock_);
    from.ended = true;
    changed_.notify_all();
}

void distributed_part::take_end(amalgam::responder<void> done, std::uint64_t batches) {
    far_group* const from = sender(done.call().from());
    if (from == nullptr) return done.fail("it has not joined");
    if (batches == from->expected) return answer_end(*from, done);
    early_[from].ends.emplace_back(batches, std::move(done));
}

void distributed_part::take_failed(const std::string& why) {
    const amalgam::peer who = amalgam::call_context::current().from();
    for (const auto& [name, each] : groups_)
        if (each->from == who || each->to == who)
            return fail("group " + name + " at " + each->address + " failed: " + why);
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
