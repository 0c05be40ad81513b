#pragma once

#include <csignal>
#include <cstddef>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/transport.hpp>

namespace amalgam::detail {

/// Signal handlers of a program: SIGINT and SIGHUP have one, SIGTERM is ignored, SIGABRT and SIGBUS
/// have the default. The destructor restores all previous handlers.
class programs_signals {
public:
    programs_signals() : before_(all()) {
        struct sigaction own {};
        own.sa_sigaction = [](int, siginfo_t*, void*) {};
        own.sa_flags = SA_SIGINFO | SA_RESTART;
        sigaddset(&own.sa_mask, SIGUSR2);
        for (const int each : {SIGINT, SIGHUP})
            ::sigaction(each, &own, nullptr);
        std::signal(SIGTERM, SIG_IGN);
        for (const int each : {SIGABRT, SIGBUS})
            std::signal(each, SIG_DFL);
        set_ = all();
    }
    ~programs_signals() {
        for (int each = 1; each < NSIG; ++each)
            ::sigaction(each, &before_[static_cast<std::size_t>(each)], nullptr);
    }
    programs_signals(const programs_signals&) = delete;
    programs_signals& operator=(const programs_signals&) = delete;

    /// The signals whose handlers have changed since.
    std::vector<int> changed() const {
        const auto now = all();
        std::vector<int> found;
        for (std::size_t each = 1; each < now.size(); ++each)
            if (!is_same(now[each], set_[each])) found.push_back(static_cast<int>(each));
        return found;
    }

private:
    static bool is_same(const struct sigaction& a, const struct sigaction& b) {
        constexpr int seen = SA_SIGINFO | SA_RESTART | SA_NODEFER | SA_ONSTACK | SA_NOCLDSTOP |
                             SA_NOCLDWAIT | static_cast<int>(SA_RESETHAND);
        for (int each = 1; each < NSIG; ++each)
            if (::sigismember(&a.sa_mask, each) != ::sigismember(&b.sa_mask, each)) return false;
        return a.sa_sigaction == b.sa_sigaction && (a.sa_flags & seen) == (b.sa_flags & seen);
    }
    static std::vector<struct sigaction> all() {
        std::vector<struct sigaction> handlers(NSIG);
        for (int each = 1; each < NSIG; ++each)
            (void)::sigaction(each, nullptr, &handlers[static_cast<std::size_t>(each)]);
        return handlers;
    }

    const std::vector<struct sigaction> before_;
    std::vector<struct sigaction> set_;
};

/// Expects the program's handlers unchanged after opening a port, describing transports and closing
/// it.
inline void expect_signals_outlive_a_port(std::string_view where) {
    const programs_signals own;
    auto all = transport_registry::installed();
    auto one = all.open(where);
    ASSERT_TRUE(one) << one.sentence();
    EXPECT_EQ(own.changed(), std::vector<int>());
    (void)all.describe();
    EXPECT_EQ(own.changed(), std::vector<int>());
    one.value().reset();
    EXPECT_EQ(own.changed(), std::vector<int>());
}

}  // namespace amalgam::detail
