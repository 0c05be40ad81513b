#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// The socket address of `name` in the abstract namespace. Returns its size.
::socklen_t abstract_address(std::string_view name, ::sockaddr_un& into);
/// Whether the other end of a connection is a process of this user, or root's.
bool is_of_this_user(int socket);

/// Answers those of this user who look at a run: one question per connection, which comes at once.
/// Connecting alone shows that the run is there.
///
/// Threads: one of its own, which `answer` runs on. A client that does not read, or reads slowly,
///          delays the others by two seconds. Those that ask nothing delay nobody: the oldest of
///          them make room.
class run_socket {
public:
    /// How many may be connected and have not asked yet.
    static constexpr std::size_t most_silent = 16;
    static constexpr std::size_t most_question_bytes = 512;
    /// The answer to a question; empty: none.
    using answerer = std::function<std::string(std::string_view question)>;

    /// If the name is taken, as another container may share the network, or no thread is left, it
    /// answers nobody.
    run_socket(const std::string& name, answerer answer);
    run_socket(const run_socket&) = delete;
    run_socket& operator=(const run_socket&) = delete;
    ~run_socket();

private:
    void run();
    void serve_those_that_ask(const ::pollfd* looks);
    bool accept_one() noexcept;
    void serve(int client);

    const answerer answer_;
    unique_fd listening_, stop_;
    std::vector<unique_fd> silent_;  // The oldest first.
    std::thread thread_;
};

}  // namespace amalgam::detail
