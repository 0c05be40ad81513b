#pragma once

#include <algorithm>
#include <cassert>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iosfwd>
#include <set>
#include <string>

#include <ff/config.hpp>
#include <ff/cycle.h>
#include <ff/platforms/platform.h>
#include <ff/spin-lock.hpp>

namespace ff {

enum { START_TIME = 0, STOP_TIME = 1, GET_TIME = 2 };

/// Prints "ERROR: " and the text to stderr, as printf does. Threads: any.
__attribute__((format(printf, 1, 2))) void error(const char* format, ...);

/// A stopwatch of the whole process: milliseconds between its last START_TIME and STOP_TIME.
double ffTime(int tag);

/// Computes for `wanted` ticks; returns by how many it was late.
inline ticks ticks_wait(ticks wanted) {
    const ticks begun = getticks();
    ticks passed = 0;
    while (passed < wanted)
        passed = getticks() - begun;
    return passed - wanted;
}
inline void ff_relax(unsigned long microseconds) {
    const timespec time{0, static_cast<long>(microseconds * 1000)};
    nanosleep(&time, nullptr);
}
inline void waitSleep(ticks nanoseconds) {
    const timespec time{0, static_cast<long>(nanoseconds)};
    nanosleep(&time, nullptr);
}
inline void waitCall(double milliseconds, double seconds) {
    const double all = seconds + milliseconds / 1000;
    const timespec time{
        static_cast<time_t>(all),
        static_cast<long>((all - static_cast<double>(static_cast<time_t>(all))) * 1e9)};
    if (all > 0) nanosleep(&time, nullptr);
}
inline unsigned long getusec(const timeval& at) {
    return static_cast<unsigned long>(at.tv_sec) * 1000000 + static_cast<unsigned long>(at.tv_usec);
}
inline unsigned long getusec() {
    timeval now;
    gettimeofday(&now, nullptr);
    return getusec(now);
}
inline double diffmsec(const timeval& later, const timeval& earlier) {
    return static_cast<double>(later.tv_sec - earlier.tv_sec) * 1000 +
           static_cast<double>(later.tv_usec - earlier.tv_usec) / 1000;
}
inline bool time_compare(const timeval& a, const timeval& b) {
    return diffmsec(a, b) < 0;
}
inline bool time_iszero(const timeval& a) {
    return a.tv_sec == 0 && a.tv_usec == 0;
}
inline void time_setzero(timeval& a) {
    a = timeval{0, 0};
}

inline bool isPowerOf2(unsigned x) {
    return x != 0 && (x & (x - 1)) == 0;
}
inline unsigned long nextPowerOf2(unsigned long x) {
    unsigned long power = 1;
    while (power < x)
        power *= 2;
    return power;
}
inline unsigned nextMultipleOfIf(unsigned x, unsigned multiple) {
    return x % multiple == 0 ? x : x + multiple - x % multiple;
}
template <class Key, class Compare, class Allocator, class Predicate>
void erase_if(std::set<Key, Compare, Allocator>& set, Predicate chosen) {
    for (auto at = set.begin(); at != set.end();)
        at = chosen(*at) ? set.erase(at) : std::next(at);
}

}  // namespace ff
