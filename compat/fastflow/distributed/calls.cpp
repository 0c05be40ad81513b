#include <utility>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/call_context.hpp>

#include "run.hpp"

// All of this runs on the engine's stream.
namespace ff::detail {
namespace {

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

/// False, and the run has ended: there was no room for it.
bool distributed_part::count(far_edge& edge, std::uint64_t batch, const frame& head) {
    if (edge.within_credit(batch, head)) return true;
    fail({"group ", edge.there.name, " at ", edge.there.address,
          " sent more than there was room for, ", std::to_string(edge.window), " items and ",
          std::to_string(far_edge::most_bytes >> 20), " MiB on one channel"});
    return false;
}

/// Batches are numbered: large ones are fetched, and others overtake them. This one came before its
/// turn.
void distributed_part::keep(far_group& from, std::uint64_t number, std::vector<std::byte> frames) {
    auto& waiting = early_[&from].batches;
    if (number <= from.expected || waiting.size() >= most_early || waiting.count(number) != 0)
        return fail({"group ", from.name, " at ", from.address, " sent a batch out of order"});
    if (count_frames(from, number, {frames.data(), frames.size()}))
        waiting.emplace(number, std::move(frames));
}

/// False, and the run has ended: it is no batch, or there was no room for it.
bool distributed_part::count_frames(far_group& from, std::uint64_t number,
                                    amalgam::const_bytes frames) {
    for (std::size_t at = 0; at != frames.size();) {
        const std::size_t left = frames.size() - at;
        const bool whole = left >= frame::header_bytes;
        const frame head = whole ? frame::read(frames.data() + at) : frame{};
        far_edge* const edge = whole ? edge_at(head.edge, false) : nullptr;
        if (edge == nullptr || &edge->there != &from || head.size > left - frame::header_bytes ||
            !edge->knows(head.mark) || (head.mark != 0 && head.size != 0)) {
            fail({"group ", from.name, " at ", from.address,
                  " sent something that is no batch of items"});
            return false;
        }
        if (!count(*edge, number, head)) return false;
        at += frame::header_bytes + static_cast<std::size_t>(head.size);
    }
    return true;
}

/// Calls `take` for each item and mark of a batch that was counted, and so is one.
template <typename Take>
void distributed_part::each_counted(amalgam::const_bytes frames, Take take) {
    for (std::size_t at = 0; at != frames.size();) {
        const std::byte* const begin = frames.data() + at;
        const frame head = frame::read(begin);
        take(*edges_[head.edge], head, begin + frame::header_bytes);
        at += frame::header_bytes + static_cast<std::size_t>(head.size);
    }
}

/// It is their turn, and they were counted.
void distributed_part::take_frames(amalgam::const_bytes frames) {
    each_counted(frames,
                 [](far_edge& to, const frame& head, const std::byte*) { to.will_come(head); });
    each_counted(frames, [](far_edge& to, const frame& head, const std::byte* bytes) {
        to.came(head, bytes);
    });
}

void distributed_part::took(far_group& from) {
    ++from.expected;
    early& waiting = early_[&from];
    for (auto next = waiting.batches.find(from.expected); next != waiting.batches.end();
         next = waiting.batches.find(from.expected)) {
        take_frames({next->second.data(), next->second.size()});
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
        fail({"cannot take what group ", from->name, " at ", from->address, " sent: ", why.what()});
    }
}

void distributed_part::take_batch(std::uint64_t number, amalgam::const_bytes frames) {
    from_sender([&](far_group& from) {
        if (number != from.expected || from.ended)
            return keep(from, number, {frames.begin(), frames.end()});
        if (!count_frames(from, number, frames)) return;
        take_frames(frames);
        took(from);
    });
}

void distributed_part::take_item(std::uint64_t number, std::uint32_t edge,
                                 amalgam::const_bytes bytes) {
    from_sender([&](far_group& from) {
        far_edge* const to = edge_at(edge, false);
        if (to == nullptr || &to->there != &from)
            return fail({"group ", from.name, " at ", from.address,
                         " sent an item to a node that it is not connected to"});
        const frame head{edge, 0, bytes.size()};
        if (number == from.expected && !from.ended) {
            if (!count(*to, number, head)) return;
            to->will_come(head);
            to->came(head, bytes.data());
            return took(from);
        }
        std::vector<std::byte> whole(frame::header_bytes);
        head.write(whole.data());
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
        return fail({"group ", from->name, " at ", from->address, " ended twice, or after ",
                     std::to_string(batches), " batches of ", std::to_string(from->expected)});
    }
    if (batches == from->expected) return answer_end(*from, std::move(done));
    waiting.end.emplace(batches, std::move(done));
}

void distributed_part::take_failed(const std::string& why) {
    const amalgam::peer who = amalgam::call_context::current().from();
    for (const auto& [name, each] : groups_)
        if (each->from == who || each->to == who)
            return fail({"group ", name, " at ", each->address, " failed: ", why});
}

void distributed_part::lose(const amalgam::peer& who, amalgam::status why) {
    for (const auto& [name, each] : groups_) {
        {
            const std::lock_guard guard(lock_);
            const bool as_sender = each->from == who && !each->ended;
            const bool as_receiver = each->to == who && !each->took_all;
            if (!as_sender && !as_receiver) continue;
        }
        return fail({"group ", name, " at ", each->address,
                     " is lost before the end of the stream (", amalgam::name(why.code),
                     "); its last output may say why. Start all groups again"});
    }
}

}  // namespace ff::detail
