#include <string>

#include <amalgam/tasks/inspect.hpp>

#include "runtime.hpp"

// Call stacks, of one ULT or all.

namespace amalgam::argobots {

std::atomic<unsigned> stacks_wanted{0};

namespace {

// Written in a signal handler, read by the stream that answers.
std::atomic<FILE*> wanted_in{nullptr};
std::atomic<double> wanted_within{-1};
std::atomic<unsigned> stacks_answered{0};
std::atomic<void (*)(ABT_bool, void*)> told_after{nullptr};
std::atomic<void*> told_with{nullptr};

void print_trace(FILE* to, const ult_info& who) {
    for (const ult_frame& each : who.trace)
        std::fprintf(to, "    %p %s\n", reinterpret_cast<void*>(each.address), each.text.c_str());
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

int trigger_print(FILE* to, double seconds, void (*told)(ABT_bool, void*), void* with) noexcept {
    wanted_in = to;
    wanted_within = seconds;
    told_after = told;
    told_with = with;
    stacks_wanted.fetch_add(1, std::memory_order_seq_cst);
    runtime::get()->primary().stream->wake();  // the others may never look again
    return ABT_SUCCESS;
}

namespace {

void print_all_stacks(FILE* to) {
    for (const ult_info& each : list_ults(true)) {
        std::fprintf(to, "ULT %p %s: %s %s\n", each.id, each.name.c_str(), name(each.state),
                     each.waits_for.c_str());
        print_trace(to, each);
    }
}

/// True: a stream has not noticed in time.
bool wait_for_streams(unsigned wanted) {
    const double seconds = wanted_within;
    const double begun = ABT_get_wtime();
    for (ABT_xstream_opaque* each : runtime::get()->streams()) {
        while (!each->ended() && each->stacks_seen.load(std::memory_order_acquire) != wanted) {
            if (seconds >= 0 && ABT_get_wtime() - begun >= seconds) return true;
            each->stream->wake();
            this_task::sleep_for(std::chrono::milliseconds(1));
        }
    }
    return false;
}

void answer_trigger(unsigned wanted) {
    const bool late = wait_for_streams(wanted);
    print_all_stacks(wanted_in);
    void (*const told)(ABT_bool, void*) = told_after;
    if (told != nullptr) told(late ? ABT_TRUE : ABT_FALSE, told_with);
}

}  // namespace

// Called between two ULTs, whose stacks cannot be read there: a ULT of its own does it.
void print_wanted_stacks(unsigned wanted) noexcept {
    if (stacks_answered.exchange(wanted) == wanted) return;
    guarded([wanted] {
        post(runtime::get()->newborn(), [wanted] { answer_trigger(wanted); });
        return ABT_SUCCESS;
    });
}

}  // namespace amalgam::argobots
