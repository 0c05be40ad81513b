#include "fabric/transports/shm/test_port.hpp"

#include <atomic>
#include <thread>
#include <utility>

#include <poll.h>

#include "fabric/transports/shm/raw_peer.hpp"

namespace amalgam::detail {

struct shm_test_port::lent_send {
    const_bytes bytes;
    recorded done;
};

shm_test_port::shm_test_port(const std::string& where, const port_options& options)
    : end_(transport_registry::native().open(where, options).value()) {
    end_->set_sink(this);
}

shm_test_port::shm_test_port(std::unique_ptr<port> opened) : end_(std::move(opened)) {
    end_->set_sink(this);
}

shm_test_port::~shm_test_port() = default;

void shm_test_port::send(peer_id to, std::uint64_t tag, const_bytes bytes) {
    sends_.push_back(std::make_unique<lent_send>());
    lent_send& one = *sends_.back();
    one.bytes = bytes;
    while (end_->post_send(to, tag, gather(&one.bytes, 1), one.done) == posted::full)
        end_->progress();
}

void shm_test_port::on_message(message& arrived) noexcept {
    const const_bytes bytes = arrived.bytes();
    tags.push_back(arrived.tag());
    last.assign(bytes.begin(), bytes.end());
    from = arrived.from();
    if (!echo) return;
    echoed_.emplace_back(bytes.begin(), bytes.end());
    send(arrived.from(), arrived.tag(), echoed_.back());
}

void move_until(std::initializer_list<shm_test_port*> ports, const std::function<bool()>& reached) {
    while (!reached()) {
        std::size_t moved = 0;
        for (shm_test_port* one : ports)
            moved += one->progress();
        if (moved == 0) std::this_thread::yield();
    }
}

void sleep_until(shm_test_port& port, const std::function<bool()>& reached,
                 const std::function<void()>& once_armed) {
    for (bool first = true; !reached();) {
        if (port.progress() > 0 || !port.end().prepare_to_sleep()) continue;
        if (std::exchange(first, false)) once_armed();
        pollfd handle{port.end().wait_handle(), POLLIN, 0};
        ::poll(&handle, 1, -1);
    }
}

void greet(shm_raw_peer& peer, shm_test_port& port) {
    std::atomic<bool> greeted{false};
    std::thread waiting([&] {
        peer.greet();
        greeted = true;
    });
    move_until({&port}, [&] { return greeted.load(); });
    waiting.join();
}

}  // namespace amalgam::detail
