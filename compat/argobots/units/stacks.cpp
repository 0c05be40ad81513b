#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <amalgam/tasks/inspect.hpp>

#include "callback.hpp"
#include "runtime.hpp"

// Call stacks, of one ULT or all.

namespace amalgam::argobots {

std::atomic<unsigned> stacks_wanted{0};

namespace {

/// One request at a time: the others are dropped, as by the original.
enum class request_stage { none, being_written, asked, being_answered };
std::atomic<request_stage> stage{request_stage::none};
std::atomic<int> answering{0};         // ULTs that answer, or tell of it
std::atomic<bool> begins_none{false};  // ABT_finalize() answers what is asked

/// Who moves `stage` on from `none` writes it, perhaps in a signal handler; who moves it on from
/// `asked` reads it.
struct {
    FILE* to;
    double seconds;
    void (*told)(ABT_bool, void*);
    void* with;
    unsigned number;  // of stacks_wanted
} request;

bool move_on(request_stage from, request_stage to) noexcept {
    return stage.compare_exchange_strong(from, to);
}

void print_trace(FILE* to, const ult_info& who) {
    for (const ult_frame& each : who.trace)
        std::fprintf(to, "    %p %s\n", reinterpret_cast<void*>(each.address), each.text.c_str());
}

struct unit_in_pool {
    unit_words words;
    const void* stack;  ///< What list_ults() knows it by.
};

std::vector<unit_in_pool> units_in(ABT_pool_opaque& pool) {
    std::vector<unit_in_pool> all;
    pool.for_each(
        [](void* to, ABT_thread_opaque& who) {
            static_cast<std::vector<unit_in_pool>*>(to)->push_back({unit_words(who), who.work});
        },
        &all);
    return all;
}

}  // namespace

int print_stack(FILE* to, ABT_thread who) noexcept {
    if (who == nullptr) return ABT_ERR_INV_THREAD;
    ABT_info_print_thread(to, who);
    return guarded([=] {
        for (const ult_info& each : list_ults(true)) {
            if (each.id == who->work) print_trace(to, each);
        }
        return ABT_SUCCESS;
    });
}

// Without the lock of the pool: who reads stacks waits for a ULT that is just leaving its stream,
// which waits for that lock. What has the same stack before and after that had it all the time; the
// stack of any other may be what one that has ended left there.
int print_stacks_in(FILE* to, ABT_pool_opaque& pool) noexcept {
    return guarded([&] {
        std::unordered_map<std::uint64_t, const void*> stacks_before;
        for (const unit_in_pool& each : units_in(pool))
            stacks_before[each.words.id] = each.stack;
        const std::vector<ult_info> listed = list_ults(true);
        std::unordered_map<const void*, const ult_info*> by_stack;
        for (const ult_info& each : listed)
            by_stack[each.id] = &each;
        for (const unit_in_pool& each : units_in(pool)) {
            each.words.print(to);
            const auto before = stacks_before.find(each.words.id);
            if (before == stacks_before.end() || before->second != each.stack) continue;
            const auto found = by_stack.find(each.stack);
            if (found != by_stack.end()) print_trace(to, *found->second);
        }
        return ABT_SUCCESS;
    });
}

int trigger_print(FILE* to, double seconds, void (*told)(ABT_bool, void*), void* with) noexcept {
    if (!move_on(request_stage::none, request_stage::being_written)) return ABT_SUCCESS;
    const unsigned number = stacks_wanted.load() + 1;
    request = {to, seconds, told, with, number};
    stage.store(request_stage::asked);
    stacks_wanted.store(number);
    runtime::get()->primary().stream->wake();  // the others may never look again
    return ABT_SUCCESS;
}

void forget_wanted_stacks() noexcept {
    stage.store(request_stage::none);
    begins_none.store(false);
}

namespace {

void print_all_stacks(FILE* to) {
    for (const ult_info& each : list_ults(true)) {
        std::fprintf(to, "ULT %p %s: %s %s\n", each.id, each.name.c_str(), name(each.state),
                     each.waits_for.c_str());
        print_trace(to, each);
    }
}

/// Wakes one that has not noticed. False: all have.
bool wake_who_has_not_noticed() {
    for (const held_stream& each : runtime::get()->hold_all()) {
        ABT_xstream_opaque& one = *each.stream;
        if (one.ended() || one.stacks_seen.load(std::memory_order_acquire) == request.number)
            continue;
        one.wake();
        return true;
    }
    return false;
}

/// True: a stream has not noticed in time.
bool wait_for_streams() {
    const double begun = ABT_get_wtime();
    while (wake_who_has_not_noticed()) {
        if (request.seconds >= 0 && ABT_get_wtime() - begun >= request.seconds) return true;
        this_task::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

void answer_request() {
    bool late = false;
    guarded([&late] {
        late = wait_for_streams();
        print_all_stacks(request.to);
        return ABT_SUCCESS;
    });
    void (*const told)(ABT_bool, void*) = request.told;
    void* const with = request.with;
    stage.store(request_stage::none);  // so that told() may ask again
    if (told == nullptr) return;
    called("an exception escaped from a function that is told of printed stacks",
           [=] { told(late ? ABT_TRUE : ABT_FALSE, with); });
}

}  // namespace

// Called between two ULTs, whose stacks cannot be read there: a ULT of its own does it.
void print_wanted_stacks() noexcept {
    ++answering;  // before it looks: answer_wanted_stacks() does it the other way round
    if (!begins_none.load() && move_on(request_stage::asked, request_stage::being_answered)) {
        const int error = guarded([] {
            post(runtime::get()->newborn(), [] {
                answer_request();
                --answering;
            });
            return ABT_SUCCESS;
        });
        if (error == ABT_SUCCESS) return;
        stage.store(request_stage::none);
    }
    --answering;
}

// What is asked for from now on, perhaps by those who are told, is dropped in the end.
void answer_wanted_stacks() noexcept {
    begins_none.store(true);
    while (answering.load() != 0)
        this_task::sleep_for(std::chrono::milliseconds(1));
    if (move_on(request_stage::asked, request_stage::being_answered)) answer_request();
}

}  // namespace amalgam::argobots
