#include <chrono>

#include "runtime.hpp"

using namespace amalgam::argobots;

struct ABT_timer_opaque {
    double began = 0;
    double ended = 0;
};

double ABT_get_wtime(void) {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

int ABT_timer_create(ABT_timer* newtimer) {
    return guarded([newtimer] {
        *newtimer = new ABT_timer_opaque;
        return ABT_SUCCESS;
    });
}

int ABT_timer_dup(ABT_timer timer, ABT_timer* newtimer) {
    if (timer == nullptr) return ABT_ERR_INV_TIMER;
    return guarded([=] {
        *newtimer = new ABT_timer_opaque(*timer);
        return ABT_SUCCESS;
    });
}

int ABT_timer_free(ABT_timer* timer) {
    if (*timer == nullptr) return ABT_ERR_INV_TIMER;
    delete *timer;
    *timer = nullptr;
    return ABT_SUCCESS;
}

int ABT_timer_start(ABT_timer timer) {
    if (timer == nullptr) return ABT_ERR_INV_TIMER;
    timer->began = ABT_get_wtime();
    return ABT_SUCCESS;
}

int ABT_timer_stop(ABT_timer timer) {
    if (timer == nullptr) return ABT_ERR_INV_TIMER;
    timer->ended = ABT_get_wtime();
    return ABT_SUCCESS;
}

int ABT_timer_read(ABT_timer timer, double* secs) {
    if (timer == nullptr) return ABT_ERR_INV_TIMER;
    *secs = timer->ended - timer->began;
    return ABT_SUCCESS;
}

int ABT_timer_stop_and_read(ABT_timer timer, double* secs) {
    const int error = ABT_timer_stop(timer);
    return error == ABT_SUCCESS ? ABT_timer_read(timer, secs) : error;
}

int ABT_timer_stop_and_add(ABT_timer timer, double* secs) {
    double more = 0;
    const int error = ABT_timer_stop_and_read(timer, &more);
    if (error == ABT_SUCCESS) *secs += more;
    return error;
}

int ABT_timer_get_overhead(double* overhead) {
    constexpr int times = 1000;
    ABT_timer_opaque timer;
    double sum = 0;
    for (int i = 0; i < times; ++i) {
        ABT_timer_start(&timer);
        ABT_timer_stop_and_add(&timer, &sum);
    }
    *overhead = sum / times;
    return ABT_SUCCESS;
}
