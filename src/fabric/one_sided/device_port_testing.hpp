#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/packets.hpp>
#include <amalgam/fabric/transport.hpp>

#include "fabric/one_sided/memory_device_testing.hpp"
#include "fabric/packets/introduced_carrier.hpp"
#include "fabric/packets/introduction.hpp"
#include "fabric/transports/tcp/tcp.hpp"

namespace amalgam::detail {

/// Packets between carriers of this process, by number.
///
/// Threads: any.
class packet_hub {
public:
    struct letter {
        std::uint64_t to = 0;
        std::vector<std::byte> bytes;
    };
    struct box {
        std::deque<letter> letters;
        unique_fd bell{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    };

    static packet_hub& instance() {
        static packet_hub one;
        return one;
    }
    std::uint64_t open(int& bell) {
        const std::lock_guard guard(lock_);
        box& made = boxes_[++last_];
        bell = made.bell.get();
        return last_;
    }
    void close(std::uint64_t number) {
        const std::lock_guard guard(lock_);
        boxes_.erase(number);
    }
    void send(std::uint64_t number, std::uint64_t to, const_bytes bytes) {
        const for_the_test spares;
        const std::lock_guard guard(lock_);
        const auto at = boxes_.find(number);
        if (at == boxes_.end()) return;
        at->second.letters.push_back({to, {bytes.begin(), bytes.end()}});
        const std::uint64_t one = 1;
        (void)!::write(at->second.bell.get(), &one, sizeof one);
    }
    bool take(std::uint64_t number, letter& into) {
        const for_the_test spares;
        const std::lock_guard guard(lock_);
        box& from = boxes_[number];
        if (from.letters.empty()) return false;
        into = std::move(from.letters.front());
        from.letters.pop_front();
        std::uint64_t count = 0;
        if (from.letters.empty()) (void)!::read(from.bell.get(), &count, sizeof count);
        return true;
    }

private:
    std::mutex lock_;
    std::uint64_t last_ = 0;
    std::map<std::uint64_t, box> boxes_;
};

/// For tests: packets through memory, and transfers by a device in memory.
class device_carrier final : public introduced_carrier {
public:
    static constexpr const char* scheme = "ofi+memory";  // As parsed from URIs.
    static constexpr std::size_t packet_bytes = 2048;

    device_carrier(std::unique_ptr<port> tcp, memory_device::settings& with)
        : introduced_carrier({std::move(tcp), scheme}), device_(with) {
        int bell = -1;
        number_ = packet_hub::instance().open(bell);
        sleep_also_on(bell);
    }
    ~device_carrier() override {
        end_introductions();
        packet_hub::instance().close(number_);
    }

    one_sided_carrier* one_sided() noexcept override { return &device_; }

protected:
    struct link final : introduced_link {
        posted send(packet& one) noexcept override {
            if (!is_open()) return posted::full;
            packet_hub::instance().send(to, their_id(), {one.data, one.bytes});
            count_sent();
            return posted::done;
        }
        std::uint64_t to = 0;
    };

    const_bytes own_name(const introduced_link&) const noexcept override {
        return as_bytes_of(number_);
    }
    std::string explain_paths() const override { return "a device in memory"; }
    std::unique_ptr<introduced_link> make_link() override { return std::make_unique<link>(); }
    status open_path(introduced_link& one, const_bytes name) noexcept override {
        if (name.size() != sizeof number_) return {errc::disconnected, EPROTO};
        std::memcpy(&static_cast<link&>(one).to, name.data(), name.size());
        return {};
    }
    void close_path(introduced_link&, bool) noexcept override {}
    void release_path(std::unique_ptr<introduced_link>) noexcept override {}
    std::size_t move_packets(std::size_t budget) noexcept override {
        std::size_t came = device_.run();
        packet_hub::letter one;
        for (; came < budget && packet_hub::instance().take(number_, one); ++came)
            if (introduced_link* to = find(one.to)) arrived(*to, one.bytes);
        return came;
    }
    bool arm_paths() noexcept override { return device_.is_idle(); }

private:
    std::uint64_t number_ = 0;
    memory_device device_;
};

/// A port over one. `with` outlives it.
inline result<std::unique_ptr<port>> try_open_device_port(memory_device::settings& with,
                                                          const port_options& options,
                                                          const uri& where) {
    auto tcp = make_tcp_transport()->open(introduction_uri(where), options);
    if (!tcp) return retold(where, tcp.why(), "ofi+memory://127.0.0.1:0");
    packet_port_traits traits;
    traits.transport = "ofi";
    traits.packet_bytes = device_carrier::packet_bytes;
    traits.listens = tcp.value()->can().listens;
    traits.between_processes = false;
    traits.rma = with.facts.mode;
    return make_packet_port(std::make_unique<device_carrier>(std::move(tcp).value(), with), traits,
                            options);
}

/// Ports whose devices have some delay.
class device_transport final : public transport {
public:
    std::string_view name() const noexcept override { return "ofi"; }
    transport_info describe() const override { return {}; }
    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override {
        all_.emplace_back();
        all_.back().delay = all_.size() % 2 == 0 ? 1 : 3;
        return try_open_device_port(all_.back(), options, where);
    }

private:
    mutable std::deque<memory_device::settings> all_;
};

inline std::unique_ptr<port> open_device_port(memory_device::settings& with,
                                              const port_options& options = {}) {
    return try_open_device_port(with, options, uri::parse("ofi+memory://127.0.0.1:0")).value();
}

}  // namespace amalgam::detail
