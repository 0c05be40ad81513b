#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/packets.hpp>

#include "fabric/packets/introducing_carrier.hpp"
#include "fabric/packets/pool.hpp"
#include "fabric/trust/tls/tls_contexts.hpp"
#include "fabric/trust/tls/tls_session.hpp"

namespace amalgam::detail {

class packet_introducer;

/// A connection of a packet_introducer.
class packet_introduced_link final : public packet_link {
public:
    explicit packet_introduced_link(packet_introducer& home) noexcept : home_(home) {}

    posted send(packet& one) noexcept override {
        return is_open_ ? below_->send(one) : posted::full;
    }
    void close() noexcept override;

private:
    friend class packet_introducer;

    /// What is needed until the ends have been introduced.
    struct handshake;
    struct handshake_end {
        void operator()(handshake* one) const noexcept;
    };

    packet_introducer& home_;
    packet_link* below_ = nullptr;
    std::unique_ptr<handshake, handshake_end> shaking_;
    std::unique_ptr<link_secrets> secrets_;
    std::string address_;
    bool is_open_ = false;
    bool is_over_ = false;
};

/// Introduces the ends of a carrier that has no socket beside it: the first packets of a connection
/// are a TLS 1.3 handshake, as that of tcp+tls, in which both prove who they are. An address names
/// no host of which a certificate could speak, so whoever the credentials trust is let in at any.
/// A sealed_carrier protects the packets that follow.
///
/// Addresses are those of the carrier below, with "+tls" behind the protocol.
///
/// Threads: the port's thread.
/// Memory:  that of a tls_session and a pair of sockets for each connection until it is introduced;
///          at most max_handshake_bytes from a peer.
class packet_introducer final : public introducing_carrier, private packet_events {
public:
    static constexpr std::size_t max_handshake_bytes = std::size_t{64} << 10;

    /// A handshake may take `limit`. `packet_bytes`: the longest packet of `below`.
    /// Failure: throws error, std::bad_alloc.
    packet_introducer(std::unique_ptr<packet_carrier> below, std::size_t packet_bytes,
                      std::shared_ptr<const credentials> trust, std::chrono::milliseconds limit,
                      std::uint8_t ciphers, const clock& time = clock::steady());
    ~packet_introducer() override;

    void start(packet_events& events) noexcept override;
    std::string address() const override;
    std::string explain() const override;
    identity self() const override { return trust_->self(); }
    result<std::string> canonical(std::string_view address) const override;
    result<packet_link*> connect(std::string_view address) override;
    void release(packet_link& link) noexcept override;
    std::size_t progress(std::size_t budget) noexcept override;
    int wait_handle() const noexcept override { return below_->wait_handle(); }
    /// While ends are introduced, the carrier below must wake by itself now and then.
    bool arm() noexcept override { return below_->arm(); }
    std::unique_ptr<link_secrets> take_secrets(packet_link& link) noexcept override;

private:
    friend class packet_introduced_link;
    using link = packet_introduced_link;

    bool accepted(packet_link&, std::string address) noexcept override;
    void received(packet_link&, const_bytes) noexcept override;
    void room(packet_link&) noexcept override;
    void down(packet_link&, status why) noexcept override;
    void returned(packet& one) noexcept override;
    void abandoned(packet& one) noexcept override;
    void due() noexcept override { events_->due(); }

    link& add(std::string address);
    void remove(link& one) noexcept;
    void begin(link& one, tls_session::side which);
    void advance(link& one) noexcept;
    bool shake(link& one);
    bool hear(link& one);
    bool flush(link& one);
    void open(link& one);
    void stop_shaking(link& one) noexcept;
    void fail(link& one, status what, std::string_view why) noexcept;
    void look_at_limits() noexcept;
    bool take_lent(packet& one) noexcept;

    const std::shared_ptr<const credentials> trust_;
    const std::chrono::milliseconds limit_;
    const std::string late_;  ///< Why a handshake that took longer has failed.
    const std::uint8_t ciphers_;
    const clock& time_;
    tls_contexts contexts_;
    tls_record record_;
    packet_events* events_ = nullptr;
    packet_pool pool_;           ///< For handshakes.
    std::vector<packet*> lent_;  ///< Of pool_, to the carrier below.
    std::vector<std::unique_ptr<link>> links_;
    std::size_t shaking_ = 0;  ///< Links that are not introduced yet.
    std::uint64_t refused_ = 0;
    std::uint64_t rounds_ = 0;
    std::uint64_t told_ = 0;  ///< Upcalls of this round that are not from below.
    std::unique_ptr<packet_carrier> below_;
};

}  // namespace amalgam::detail
