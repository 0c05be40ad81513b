#include "flow/processes/channel_calls.hpp"

#include <span>

#include <fmt/format.h>

#include "flow/channel/wire.hpp"

namespace amalgam::detail {

channel_calls::channel_calls(run_context& run, channel_set& channels, neighbors& others)
    : run_(run), channels_(channels), others_(others) {
    run_.over.define(library_name{wire::batch},
                     [this](std::uint32_t edge, std::uint32_t replica, std::uint64_t number,
                            std::uint32_t items, std::span<const std::byte> bytes) {
                         take_batch(edge, replica, number, {bytes, items});
                     });
    run_.over.define(library_name{wire::end}, [this](std::uint32_t edge, std::uint32_t replica,
                                                     std::uint64_t batches, std::uint64_t items) {
        return take_end(edge, replica, batches, items);
    });
    run_.over.define(library_name{wire::credit},
                     [this](std::uint32_t edge, std::uint32_t replica, std::uint64_t bytes,
                            std::uint64_t items) { take_credit(edge, replica, bytes, items); });
}

void channel_calls::take_batch(std::uint32_t edge, std::uint32_t replica, std::uint64_t number,
                               channel_in::batch what) {
    const channel_set::in_edge& in = channels_.in(edge);
    const neighbor& from = others_.caller({in.from_group, replica}, true);
    // The loop has ended, so nobody would take the item: a premature end must not lose it silently.
    if (in.back_in != nullptr && in.back_in->is_over())
        run_.nodes.fail({{{errc::mismatch},
                          fmt::format("group {} sent an item back into a loop that has already "
                                      "ended, expected every group to count the items in it",
                                      from.label)}});
    receiver::consumed so_far;
    try {
        if (!in.channel->deliver(replica, number, what, so_far)) return;
    } catch (const error& wrong) {
        others_.blame(from, wrong);
        throw;
    }
    run_.over.procedure<wire::credit_signature>(wire::credit)
        .on(from.at)
        .post(edge, static_cast<std::uint32_t>(run_.here.replica), so_far.bytes, so_far.items);
}

void channel_calls::take_credit(std::uint32_t edge, std::uint32_t replica, std::uint64_t bytes,
                                std::uint64_t items) {
    const channel_set::out_edge& out = channels_.out(edge);
    (void)others_.caller({out.to_group, replica}, false);
    out.to(replica).credit(out.number(replica), bytes, items);
}

std::string channel_calls::take_end(std::uint32_t edge, std::uint32_t replica,
                                    std::uint64_t batches, std::uint64_t items) {
    const channel_set::in_edge& in = channels_.in(edge);
    const neighbor& from = others_.caller({in.from_group, replica}, true);
    try {
        in.channel->finish(replica, batches, items);
        return {};
    } catch (const error& wrong) {
        others_.blame(from, wrong);
        auto failed = run_.nodes.failed();
        if (!failed) throw;
        return failed->what.sentence;
    }
}

}  // namespace amalgam::detail
