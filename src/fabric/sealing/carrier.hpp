#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/fabric/one_sided.hpp>
#include <amalgam/fabric/packets.hpp>

#include "fabric/packets/introducing_carrier.hpp"
#include "fabric/packets/pool.hpp"
#include "fabric/sealing/packet_keys.hpp"

namespace amalgam::detail {

class sealed_carrier;
class sealed_one_sided;

/// A connection of a sealed_carrier.
class sealed_link final : public packet_link {
public:
    sealed_link(sealed_carrier& home) noexcept : home_(home) {}

    posted send(packet& one) noexcept override;
    void close() noexcept override;

private:
    friend class sealed_carrier;
    friend class sealed_one_sided;

    sealed_carrier& home_;
    packet_link* inner_ = nullptr;
    packet_keys_ptr keys_;      ///< Null until the ends have been introduced.
    packet* held_ = nullptr;    ///< Sealed, and refused by the carrier below until it has room.
    bool was_refused_ = false;  ///< For lack of memory; room() is due.
    bool over_ = false;
    std::string address_;
    identity who_;
};

/// A carrier over another one that introduced its ends over TLS: whatever carries the packets, it
/// sees none of their bytes and can change none. Each is encrypted and authenticated, with a
/// number, under keys of its connection and direction. One that is not what was sent, or not in
/// its turn, ends the connection and is counted.
///
/// Packets are sealed from the port's memory into memory of this carrier, so the port gets its own
/// back at once, and a packet that finds no room is kept as it is: never is a number used for two.
///
/// Threads: the port's thread.
/// Cost:    one pass over each packet on either side; memory for packets that wait, recycled.
class sealed_carrier final : public introducing_carrier,
                             public link_identities,
                             private packet_events {
public:
    /// `packet_bytes`: the longest packet of `below`. The port's may have room_for(packet_bytes).
    /// Failure: throws error{internal}, std::bad_alloc.
    sealed_carrier(std::unique_ptr<introducing_carrier> below, std::size_t packet_bytes);
    ~sealed_carrier() override;

    static constexpr std::size_t room_for(std::size_t packet_bytes) noexcept {
        return packet_bytes - packet_key::tag_bytes;
    }

    void start(packet_events& events) noexcept override;
    std::string address() const override { return below_->address(); }
    std::string explain() const override;
    result<std::string> canonical(std::string_view address) const override {
        return below_->canonical(address);
    }
    result<packet_link*> connect(std::string_view address) override;
    void release(packet_link& link) noexcept override;
    std::size_t progress(std::size_t budget) noexcept override;
    int wait_handle() const noexcept override { return below_->wait_handle(); }
    bool arm() noexcept override { return !has_refused_ && below_->arm(); }
    /// What the carrier below has, which seals nothing of it: only where that was decided.
    one_sided_carrier* one_sided() noexcept override;
    std::unique_ptr<link_secrets> take_secrets(packet_link&) noexcept override { return nullptr; }

    identity self() const override { return below_->self(); }
    identity who(const packet_link& link) const override {
        return static_cast<const sealed_link&>(link).who_;
    }

private:
    friend class sealed_link;

    bool accepted(packet_link&, std::string address) noexcept override;
    void received(packet_link&, const_bytes) noexcept override;
    void room(packet_link&) noexcept override;
    void down(packet_link&, status why) noexcept override;
    void returned(packet& one) noexcept override { pool_.give_back(one); }
    void abandoned(packet& one) noexcept override { pool_.abandon(one); }
    void due() noexcept override { events_->due(); }

    sealed_link& add(packet_link* below, std::string address);
    void remove(sealed_link& link) noexcept;
    posted send(sealed_link& by, packet& one) noexcept;
    bool send_held(sealed_link& link) noexcept;
    void drop_held(sealed_link& link) noexcept;
    bool has_keys(sealed_link& link) noexcept;
    bool passes_unsealed() const noexcept;
    void refuse(sealed_link& link, const_bytes bytes) noexcept;
    void fail(sealed_link& link, status why) noexcept;
    void tell_refused() noexcept;

    const std::uint8_t ciphers_;
    packet_events* events_ = nullptr;
    packet_pool pool_;
    std::unique_ptr<std::byte[]> opened_;  ///< The packet that is being delivered.
    std::uint64_t refused_ = 0;            ///< Packets that were not what is due.
    std::uint64_t told_ = 0;               ///< Upcalls of this round that are not from below.
    bool has_refused_ = false;
    std::vector<std::unique_ptr<sealed_link>> links_;
    std::unique_ptr<introducing_carrier> below_;  ///< Returns packets when destroyed.
    std::unique_ptr<sealed_one_sided> one_sided_;
};

/// A port over a sealed_carrier, whose packets are room_for(traits.packet_bytes) long.
/// Failure: throws error{internal}, std::bad_alloc.
std::unique_ptr<port> make_sealed_port(std::unique_ptr<introducing_carrier> below,
                                       packet_port_traits traits, const port_options& options);

}  // namespace amalgam::detail
