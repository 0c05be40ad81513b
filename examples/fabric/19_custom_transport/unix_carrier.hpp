#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/core.hpp>
#include <amalgam/fabric.hpp>

class unix_carrier;

/// One connection: a socket that preserves packet boundaries and order.
class unix_link final : public amalgam::packet_link {
public:
    unix_link(unix_carrier& home, amalgam::unique_fd socket) noexcept
        : home_(home), socket_(std::move(socket)) {}

    amalgam::posted send(amalgam::packet& one) noexcept override;
    void close() noexcept override;

private:
    friend class unix_carrier;

    unix_carrier& home_;
    amalgam::unique_fd socket_;  // Empty: closed, or never connected.
    bool failed_ = false;        // Nobody listens at its address; progress() reports it.
    bool was_full_ = false;      // The kernel's buffer was full; epoll reports room.
};

/// Packets over Unix-domain sockets.
///
/// Threads: the port's.
class unix_carrier final : public amalgam::packet_carrier {
public:
    static constexpr std::size_t packet_bytes = 32768;

    /// Listens at `path`; an empty one means not to listen.
    /// Failure: throws amalgam::error.
    explicit unix_carrier(std::string path);
    ~unix_carrier() override;

    void start(amalgam::packet_events& events) noexcept override { events_ = &events; }
    std::string address() const override;
    std::string explain() const override;
    amalgam::result<std::string> canonical(std::string_view address) const override;
    amalgam::result<amalgam::packet_link*> connect(std::string_view address) override;
    void release(amalgam::packet_link& link) noexcept override;
    std::size_t progress(std::size_t budget) noexcept override;
    int wait_handle() const noexcept override { return epoll_.get(); }
    bool arm() noexcept override { return !has_failed_; }

private:
    friend class unix_link;

    unix_link& add(amalgam::unique_fd socket);
    void watch(int fd, void* owner, std::uint32_t events);
    void accept_callers() noexcept;
    std::size_t read(unix_link& link, std::size_t budget) noexcept;
    void lose(unix_link& link, amalgam::status why) noexcept;

    std::string path_;
    amalgam::unique_fd epoll_;
    amalgam::unique_fd listener_;
    amalgam::packet_events* events_ = nullptr;
    std::vector<std::unique_ptr<unix_link>> links_;
    std::unique_ptr<std::byte[]> buffer_;  // For the packet being read.
    bool has_failed_ = false;
};
