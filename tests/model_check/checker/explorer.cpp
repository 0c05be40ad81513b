#include "model_check/checker/explorer.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <boost/context/detail/fcontext.hpp>
#include <fmt/format.h>

namespace amalgam::model {
namespace {

constexpr std::size_t stack_bytes = std::size_t{256} << 10;
alignas(64) std::byte stacks[max_threads][stack_bytes];

/// What the program allocates: at the same addresses in each execution.
constexpr std::size_t arena_bytes = std::size_t{8} << 20;
alignas(64) std::byte arena[arena_bytes];
struct alignas(16) block_header {
    std::size_t bytes;
    bool is_freed;
};

/// Steps of threads that wait in loops while nobody stores: longer loops end otherwise.
constexpr std::size_t most_rounds = 800;

bool is_seq_cst(const step& what) noexcept {
    return what.order == std::memory_order_seq_cst;
}

}  // namespace

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

class explorer::outside {
public:
    outside() noexcept
        : current_was_(std::exchange(current_, nullptr)),
          allocating_was_(std::exchange(allocating_, nullptr)) {}
    ~outside() {
        current_ = current_was_;
        allocating_ = allocating_was_;
    }
    outside(const outside&) = delete;

private:
    explorer* current_was_;
    explorer* allocating_was_;
};

void explorer::run_body() noexcept {
    thread& me = threads_[running_];
    allocating_ = this;
    current_ = this;
    me.body();
    current_ = nullptr;
    allocating_ = nullptr;
    me.is = thread::state::done;
}

void explorer::enter(transfer_t from) {
    auto& self = *static_cast<explorer*>(from.data);
    self.scheduler_ = from.fctx;
    self.run_body();
    jump_fcontext(self.scheduler_, nullptr);
    std::abort();
}

void explorer::resume(std::size_t who) {
    running_ = who;
    const transfer_t back = jump_fcontext(threads_[who].context, this);
    threads_[who].context = back.fctx;
}

std::uint64_t explorer::take(step what) {
    const outside own;
    if (what.address != 0) what.where = memory_.at(what.address, what.bytes);
    if (what.what == kind::yield) {
        for (const auto& each : threads_[running_].watched)
            what.watched.set(each.first);
    }
    thread& me = threads_[running_];
    if (what.what == kind::load && me.looked_at == what.where && me.looks >= free_looks &&
        me.looks < most_looks) {
        ++me.looks;
        return me.got;
    }
    me.next = what;
    scheduler_ = jump_fcontext(scheduler_, nullptr).fctx;
    return threads_[running_].got;
}

void explorer::fail(const char* why) {
    current_ = nullptr;
    allocating_ = nullptr;
    failure_ = why;
    jump_fcontext(scheduler_, nullptr);
    std::abort();
}

void explorer::fail_afterwards(const char* why) {
    if (running_one_ != nullptr && running_one_->failure_.empty()) running_one_->failure_ = why;
}

void explorer::plain(std::uintptr_t address, std::size_t bytes, bool does_write) {
    const char* why = nullptr;
    {
        const outside own;
        why = memory_.plain(running_, address, bytes, does_write);
    }
    if (why != nullptr) fail(why);
}

void* explorer::allocate(std::size_t bytes, std::size_t alignment) {
    alignment = std::max(alignment, sizeof(block_header));
    std::size_t at = allocated_ + sizeof(block_header);
    at = (at + alignment - 1) / alignment * alignment;
    if (at + bytes > arena_bytes) {
        fmt::print(stderr, "model: the program allocates more than {} bytes\n", arena_bytes);
        std::abort();
    }
    allocated_ = at + bytes;
    new (arena + at - sizeof(block_header)) block_header{bytes, false};
    return arena + at;
}

bool explorer::is_own(const void* at) noexcept {
    return at >= arena && at < arena + arena_bytes;
}

// What the program frees is not used again in the same execution, so that a late use is noticed.
void explorer::free(void* at) {
    if (current_ == nullptr) return;
    explorer& self = *current_;
    block_header& block = reinterpret_cast<block_header*>(at)[-1];
    const char* why = block.is_freed ? "memory is freed twice" : nullptr;
    block.is_freed = true;
    if (why == nullptr) {
        const outside own;
        why = self.memory_.freed(self.running_, reinterpret_cast<std::uintptr_t>(at), block.bytes);
    }
    if (why != nullptr) self.fail(why);
}

result explorer::run() {
    running_one_ = this;
    result found;
    do {
        run_once();
        ++(is_cut_ ? found.cut : found.executions);
        if (!failure_.empty()) found.trace = told();
        program_.reset();
        found.failure = failure_;
        found.complete = false;
    } while (failure_.empty() && found.executions + found.cut < how_.most &&
             (found.complete = !next_way(), !found.complete));
    running_one_ = nullptr;
    return found;
}

void explorer::run_once() {
    at_ = 0;
    sleep_ = 0;
    is_cut_ = false;
    rounds_without_store_ = 0;
    events_.clear();
    allocated_ = 0;
    program_ = std::make_unique<execution>();
    allocating_ = this;
    build_(*program_);
    allocating_ = nullptr;
    count_ = program_->threads_.size();
    memory_.start(count_);
    for (std::size_t i = 0; i < count_; ++i) {
        threads_[i] = {};
        threads_[i].body = program_->threads_[i];
        threads_[i].context = make_fcontext(stacks[i] + stack_bytes, stack_bytes, enter);
        resume(i);
        if (!failure_.empty()) return;
    }
    while (go_on()) {
    }
    if (!failure_.empty() || is_cut_) return;
    for (const auto& check : program_->checks_)
        check();
    for (auto each = program_->ends_.rbegin(); each != program_->ends_.rend(); ++each)
        (*each)();
}

bool explorer::is_enabled(const thread& who) noexcept {
    if (who.is == thread::state::done) return false;
    switch (who.next.what) {
        case kind::wait:
            return *reinterpret_cast<const int*>(who.next.address) > 0;
        case kind::futex_sleep:
            return who.is_woken;
        case kind::lock: {
            const place& there = memory_.of(who.next.where);
            return there.stores[there.order.back()].value == 0;
        }
        default:
            return true;
    }
}

bool explorer::is_reluctant(const thread& who) noexcept {
    if (who.next.what == kind::yield) {
        return std::none_of(who.watched.begin(), who.watched.end(), [&](const auto& each) {
            return memory_.of(each.first).order.size() - 1 > each.second;
        });
    }
    return who.next.what == kind::load && who.looks >= most_looks &&
           who.looked_at == who.next.where &&
           memory_.of(who.next.where).order.size() - 1 == who.looked_position;
}

bool explorer::go_on() {
    unsigned enabled = 0, reluctant = 0;
    bool all_done = true;
    for (std::size_t i = 0; i < count_; ++i) {
        all_done = all_done && threads_[i].is == thread::state::done;
        if (!is_enabled(threads_[i])) continue;
        (is_reluctant(threads_[i]) ? reluctant : enabled) |= 1u << i;
    }
    if (all_done) return false;
    if (enabled == 0) enabled = reluctant;
    if (enabled == 0 || rounds_without_store_ > most_rounds) {
        failure_ = "all threads wait for ever";
        for (std::size_t i = 0; i < count_; ++i) {
            if (threads_[i].is != thread::state::done) find_races(i);
        }
        return false;
    }
    const std::size_t who = pick(enabled);
    if (who == max_threads) {
        is_cut_ = true;
        return false;
    }
    perform(who);
    if (!failure_.empty()) return false;
    resume(who);
    return failure_.empty();
}

/// Which thread takes its step now; max_threads: each of them was, or will be, elsewhere.
std::size_t explorer::pick(unsigned enabled) {
    if (at_ == nodes_.size()) {
        node made;
        made.enabled = enabled;
        made.sleep = how_.reduce ? sleep_ : 0;
        const unsigned awake = enabled & ~made.sleep;
        if (awake == 0) return max_threads;
        made.chosen = static_cast<std::size_t>(std::countr_zero(awake));
        made.backtrack = how_.reduce ? 1u << made.chosen : enabled;
        nodes_.push_back(made);
    }
    const std::size_t who = nodes_[at_].chosen;
    find_races(who);
    const node& here = nodes_[at_++];
    sleep_ = 0;
    for (std::size_t i = 0; i < count_; ++i) {
        if (((here.sleep | here.done) >> i & 1u) != 0 && i != who &&
            !depends(threads_[i].next, threads_[who].next))
            sleep_ |= 1u << i;
    }
    return who;
}

/// One of so many ways.
std::size_t explorer::choose(std::size_t count) {
    if (count == 1) return 0;
    if (at_ == nodes_.size()) {
        node made;
        made.is_data = true;
        made.count = count;
        nodes_.push_back(made);
    }
    return nodes_[at_++].chosen;
}

bool explorer::next_way() {
    while (!nodes_.empty()) {
        node& last = nodes_.back();
        if (last.is_data) {
            if (++last.chosen < last.count) return true;
        } else {
            last.done |= 1u << last.chosen;
            const unsigned left = last.backtrack & ~last.done & ~last.sleep;
            if (left != 0) {
                last.chosen = static_cast<std::size_t>(std::countr_zero(left));
                return true;
            }
        }
        nodes_.pop_back();
    }
    return false;
}

bool explorer::depends(const step& one, const step& other) noexcept {
    if (one.what == kind::fence_all || other.what == kind::fence_all) return true;
    if (one.what == kind::fence || other.what == kind::fence)
        return is_seq_cst(one) && is_seq_cst(other);
    if (one.what == kind::yield) return other.writes() && one.watched[other.where];
    if (other.what == kind::yield) return depends(other, one);
    if (one.where != other.where) return false;
    return one.writes() || other.writes() || (is_seq_cst(one) && is_seq_cst(other));
}

/// Where another thread's step could have come after the next one of `who`, it must come so once.
void explorer::find_races(std::size_t who) {
    if (!how_.reduce) return;
    const thread& me = threads_[who];
    auto after = me.after;  // With what comes before it by the steps looked at so far.
    for (std::size_t i = events_.size(); i-- > 0;) {
        const event& earlier = events_[i];
        if (earlier.thread == who || !depends(earlier.what, me.next)) continue;
        // Never possible the other way round; but what was locked before may have come after.
        if (earlier.what.what == kind::unlock && me.next.what == kind::lock) continue;
        if (after[earlier.thread] >= earlier.number) continue;
        for (std::size_t each = 0; each < count_; ++each)
            after[each] = std::max(after[each], earlier.after[each]);
        reverse(i, who);
    }
}

/// The next step of `who`, and all that comes before it, is to come before that event. So is any
/// thread of these that can be the first (the source sets of Abdulla et al.).
void explorer::reverse(std::size_t which, std::size_t who) {
    const event& earlier = events_[which];
    const thread& me = threads_[who];
    std::array<int, max_threads> found{};  // The first number of each thread among them.
    unsigned first = 0;
    auto after = me.after;
    for (std::size_t k = which + 1; k < events_.size(); ++k) {
        const event& each = events_[k];
        if (each.after[earlier.thread] >= earlier.number) continue;
        if (each.thread != who && depends(each.what, me.next)) {
            for (std::size_t i = 0; i < count_; ++i)
                after[i] = std::max(after[i], each.after[i]);
        }
        if (found[each.thread] != 0) continue;
        found[each.thread] = each.number;
        bool is_first = true;
        for (std::size_t i = 0; i < count_; ++i)
            is_first = is_first && (i == each.thread || found[i] == 0 || each.after[i] < found[i]);
        if (is_first) first |= 1u << each.thread;
    }
    if (found[who] == 0) {
        bool is_first = true;
        for (std::size_t i = 0; i < count_; ++i)
            is_first = is_first && (found[i] == 0 || after[i] < found[i]);
        if (is_first) first |= 1u << who;
    }
    node& there = nodes_[earlier.node];
    if ((first & there.backtrack) != 0) return;
    const unsigned possible = first & there.enabled;
    there.backtrack |= possible != 0 ? possible & (~possible + 1) : there.enabled;
}

result explore(const std::function<void(execution&)>& build, options how) {
    // In a process that never had a second thread, libstdc++ counts references without atomics.
    [[maybe_unused]] static const bool has_had_threads = (std::thread([] {}).join(), true);
    const auto run = std::make_unique<explorer>(build, how);
    result found = run->run();
    if (std::getenv("AMALGAM_MODEL_TELL") != nullptr) {
        fmt::print("  {} executions, {} left halfway: {}\n", found.executions, found.cut,
                   !found.failure.empty() ? found.failure
                   : found.complete       ? "complete"
                                          : "too many");
        std::fflush(stdout);
    }
    return found;
}

void require(bool holds, const char* otherwise) {
    if (holds) return;
    if (explorer* const here = explorer::current()) here->fail(otherwise);
    explorer::fail_afterwards(otherwise);
}

void yield() {
    explorer* const here = explorer::current();
    if (here != nullptr) here->take({});
}

void barrier_in_all() {
    step what;
    what.what = kind::fence_all;
    what.order = std::memory_order_seq_cst;
    if (explorer* const here = explorer::current()) here->take(what);
}

void wake_up::strike() {
    step what;
    what.what = kind::strike;
    what.address = reinterpret_cast<std::uintptr_t>(&count_);
    what.bytes = sizeof count_;
    if (explorer* const here = explorer::current()) here->take(what);
}

void wake_up::wait() {
    step what;
    what.what = kind::wait;
    what.address = reinterpret_cast<std::uintptr_t>(&count_);
    what.bytes = sizeof count_;
    if (explorer* const here = explorer::current()) here->take(what);
}

}  // namespace amalgam::model
