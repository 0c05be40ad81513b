// Two engines inside a plain epoll loop, next to a pipe and a timer: one thread in all. Collects
// lines of standard input, sends them to the server when the timer ticks, and prints them in upper
// case.
//   printf 'hello\nworld\n' | event_loop
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <amalgam/core.hpp>
#include <amalgam/rpc.hpp>

namespace {

/// Stands for a program's existing loop.
class event_loop {
public:
    void watch(int fd, std::function<void()> when_readable) {
        epoll_event wanted{};
        wanted.events = EPOLLIN;
        wanted.data.fd = fd;
        if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &wanted) != 0) {
            throw std::runtime_error(
                "standard input cannot be polled, expected a pipe or a terminal; example: echo "
                "hello | event_loop");
        }
        when_readable_[fd] = std::move(when_readable);
    }
    void forget(int fd) {
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
        when_readable_.erase(fd);
    }
    /// Sleeps until something is readable.
    void turn() {
        epoll_event came{};
        if (::epoll_wait(epoll_.get(), &came, 1, -1) != 1) return;
        if (const auto at = when_readable_.find(came.data.fd); at != when_readable_.end()) {
            const auto what = at->second;  // A copy: it may remove itself.
            what();
        }
    }

private:
    am::unique_fd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
    std::map<int, std::function<void()>> when_readable_;
};

void run() {
    event_loop loop;
    const am::engine_options in_this_loop{.progress = {.by = am::progress_by::caller}};
    am::engine server{"tcp://127.0.0.1:0", in_this_loop};
    am::engine client{"tcp://", in_this_loop};
    for (am::engine* each : {&server, &client})
        loop.watch(each->wait_handle(), [each] { each->progress(); });

    server.define("upper", [](std::string line) {
        am::this_task::yield();  // A handler is a ULT: it may wait.
        for (char& each : line)
            each = static_cast<char>(std::toupper(static_cast<unsigned char>(each)));
        return line;
    });
    auto upper = client.procedure<std::string(std::string)>("upper").on(server.address());

    std::string gathered;
    bool ended = false;
    loop.watch(STDIN_FILENO, [&] {
        std::array<char, 4096> piece;
        const auto got = ::read(STDIN_FILENO, piece.data(), piece.size());
        if (got > 0) return void(gathered.append(piece.data(), static_cast<std::size_t>(got)));
        ended = true;
        loop.forget(STDIN_FILENO);
    });

    const am::unique_fd timer{::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)};
    const itimerspec each_ten_ms{{0, 10'000'000}, {0, 10'000'000}};
    ::timerfd_settime(timer.get(), 0, &each_ten_ms, nullptr);
    int unanswered = 0;
    loop.watch(timer.get(), [&] {
        std::uint64_t ticks = 0;
        if (::read(timer.get(), &ticks, sizeof ticks) != sizeof ticks) return;
        for (auto end = gathered.find('\n'); end != std::string::npos; end = gathered.find('\n')) {
            ++unanswered;
            // Must not wait: this thread is the one that receives the answer.
            upper.call_then(
                [&](const am::result<std::string>& line) {
                    --unanswered;
                    std::puts(line.ok() ? line->c_str() : line.sentence().c_str());
                },
                gathered.substr(0, end));
            gathered.erase(0, end + 1);
        }
    });

    while (!ended || unanswered != 0 || gathered.find('\n') != std::string::npos)
        loop.turn();
}

}  // namespace

int main() {
    try {
        run();
    } catch (const std::exception& why) {
        std::fprintf(stderr, "event_loop: %s\n", why.what());
        return 1;
    }
}
