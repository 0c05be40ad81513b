#include "rpc/memory/loans.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/work_unit.hpp>

#include "rpc/context/engine_context.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

std::uint64_t lend(const origin* between, std::shared_ptr<void> what, std::size_t bytes) {
    if (between == nullptr || between->lends == nullptr) {
        throw error(errc::unsupported,
                    "a bulk descriptor can only be serialized for the peer of a call: send it as "
                    "an argument or result of a procedure");
    }
    static std::atomic<std::uint64_t> latest{random_u64()};
    const std::uint64_t id = latest.fetch_add(1, std::memory_order_relaxed);
    between->lends->push_back({id, std::move(what), bytes, nullptr});
    return id;
}

bool take_loan(const origin* between, std::uint64_t id) noexcept {
    if (between == nullptr || between->received == nullptr) return false;
    loan_ids& ids = *between->received;
    const auto at = std::find(ids.begin(), ids.end(), id);
    if (at == ids.end()) return false;
    ids.erase(at);
    return true;
}

void release_loan(engine_core& core, const peer& lender, std::uint64_t id) noexcept {
    struct posted_task final : work_unit {
        posted_task(engine_core& core, const peer& whose, std::uint64_t which) noexcept
            : work_unit(&posted_task::run_it),
              alive(core),
              mine(loans_of(core)),
              lender(whose),
              id(which) {}
        static void run_it(work_unit& self) noexcept {
            const std::unique_ptr<posted_task> me(static_cast<posted_task*>(&self));
            me->mine.release(me->lender, me->id);
        }
        core_reference alive;
        loans& mine;
        peer lender;
        std::uint64_t id;
    };
    engine_context& context = context_of(core);
    const auto tell = [&] {
        const core_reference alive(core);
        loans_of(core).release(lender, id);
    };
    if (context.on_owner()) return tell();
    if (auto* const later = new (std::nothrow) posted_task(core, lender, id)) {
        if (!context.hand_over(*later)) delete later;
    } else if (this_task::in_ult() || execution_stream::current() == nullptr) {
        try {
            const cancel_later it_must_be_told;
            context.on_stream(tell);  // Allocates nothing.
        } catch (...) {
            // The engine has ended.
        }
    }  // Otherwise the lender keeps it until this engine is gone.
}

bool loans::keep(const peer& to, const lent_list& what) noexcept {
    return keep(to, what, false);
}

bool loans::keep(const peer& to, const lent_list& what, bool counts) noexcept {
    if (what.empty()) return true;
    try {
        of_peer& kept = kept_[to];
        for (const lent& each : what) {
            const std::size_t bytes = counts ? each.bytes + overhead_bytes : 0;
            const bool values = each.bytes != 0;
            if (!kept.all.emplace(each.id, kept_one{each.what, bytes, values, each.end}).second)
                continue;
            size_.add();
            kept.unfetched += values ? 1 : 0;
            unfetched_ += values ? 1 : 0;
            kept.bytes += bytes;
            borrowed_bytes_.add(bytes);
        }
        return true;
    } catch (const std::bad_alloc&) {
        withdraw(to, what);
        return false;
    }
}

status loans::keep_lent(const peer& to, const lent_list& what) noexcept {
    std::size_t bytes = 0;
    for (const lent& each : what)
        bytes += each.bytes + overhead_bytes;
    const auto here = kept_.find(to);
    const std::size_t held = here == kept_.end() ? 0 : here->second.bytes;
    if (bytes != 0 && held != 0 && held + bytes > most_to_one_) return {errc::overloaded};
    while (bytes != 0 && borrowed_bytes_.value() != 0 &&
           borrowed_bytes_.value() + bytes > most_to_all_) {
        const auto most = std::max_element(kept_.begin(), kept_.end(), [](auto& a, auto& b) {
            return a.second.bytes < b.second.bytes;
        });
        if (most->second.bytes <= held) return {errc::overloaded};
        take_back(peer(most->first));
    }
    return {keep(to, what, true) ? errc::ok : errc::no_memory};
}

void loans::take_back(const peer& from) noexcept {
    taken_back_.add();
    limited_log(log_level::warn, "rpc",
                "disconnected a peer that does not fetch or release its results", {});
    out_.cut_off(from);
    on_peer_down(from);
}

void loans::drop(const peer& to, std::uint64_t id, loan_end::how how) noexcept {
    const auto kept = kept_.find(to);
    if (kept == kept_.end()) return;
    const auto at = kept->second.all.find(id);
    if (at == kept->second.all.end()) return;
    // Its destructor may release other buffers, so it runs once the tables are consistent.
    const kept_one last = std::move(at->second);
    kept->second.all.erase(at);
    kept->second.bytes -= last.bytes;
    borrowed_bytes_.subtract(last.bytes);
    size_.subtract();
    kept->second.unfetched -= last.values ? 1 : 0;
    unfetched_ -= last.values ? 1 : 0;
    if (kept->second.all.empty()) kept_.erase(kept);
    if (last.end) last.end->set(how);
}

void loans::withdraw(const peer& to, const lent_list& what) noexcept {
    for (const lent& each : what)
        drop(to, each.id, loan_end::how::dropped);
    const auto kept = kept_.find(to);
    if (kept != kept_.end() && kept->second.all.empty()) kept_.erase(kept);
}

void loans::on_release(const peer& from, const_bytes ids) noexcept {
    for (std::size_t at = 0; at + 8 <= ids.size(); at += 8)
        drop(from, load_le<std::uint64_t>(ids.data() + at), loan_end::how::released);
}

void loans::on_peer_down(const peer& gone) noexcept {
    const auto kept = kept_.find(gone);
    if (kept == kept_.end()) return;
    const of_peer last = std::move(kept->second);
    kept_.erase(kept);
    size_.subtract(last.all.size());
    unfetched_ -= last.unfetched;
    borrowed_bytes_.subtract(last.bytes);
}

void loans::release(peer_state& lender, const_bytes ids) noexcept {
    if (ids.empty()) return;
    std::byte header[release_bytes];
    write_release(header);
    if (out_.send_copy(lender, 0, {header, ids})) return;
    lender.name.is_self() ? on_release(lender.name, ids) : out_.cut_off(lender.name);
}

void loans::release(peer_state& lender, const loan_ids& ids) noexcept {
    for (const std::uint64_t each : ids) {
        std::byte bytes[8];
        store_le(bytes, each);
        release(lender, const_bytes(bytes));
    }
}

void loans::release(const peer& lender, const loan_ids& ids) noexcept {
    if (peer_state* const there = routes_.way_to(lender)) release(*there, ids);
}

void loans::release(const peer& lender, std::uint64_t id) noexcept {
    std::byte bytes[8];
    store_le(bytes, id);
    if (peer_state* const there = routes_.way_to(lender)) release(*there, const_bytes(bytes));
}

void loans::close() noexcept {
    const auto last = std::exchange(kept_, {});
    size_.set(0);
    unfetched_ = 0;
    borrowed_bytes_.set(0);
}

const_bytes loans_in(const_bytes extras) noexcept {
    return find_extra(extras, extra::loans);
}

loan_ids to_ids(const_bytes wire) {
    loan_ids ids(wire.size() / 8);
    for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = load_le<std::uint64_t>(wire.data() + 8 * i);
    return ids;
}

}  // namespace amalgam::detail
