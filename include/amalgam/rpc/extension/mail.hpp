#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/peer.hpp>

/// Messages between the same layer above at two engines, where a call would be too much: no
/// procedure, no types, no ULT, no answer. In order with one-way calls to the same peer.
namespace amalgam::detail {

class engine_core;

/// Who gets the mail of an engine.
///
/// Threads: the engine's stream.
class mail_sink {
public:
    /// `content` is valid until this returns, at any address. Must not wait.
    virtual void on_mail(const peer& from, const_bytes content) noexcept = 0;

protected:
    ~mail_sink() = default;
};

/// From here on `sink` gets what arrives; null: nobody, and it is dropped. The one before is let go
/// of, after its on_mail() if that runs.
/// Failure: throws error{closed} after the end.
void accept_mail(engine_core& core, std::shared_ptr<mail_sink> sink);

/// Longest arguments of a call that go to that peer in its message. Longer ones are fetched by the
/// peer, and later calls may overtake them.
std::size_t most_argument_bytes(engine_core& core, const peer& to) noexcept;

/// Whether a call to that peer begins without a wait, also where the caller cannot wait: less than
/// half of what may be queued is, so that callers elsewhere do not fill the rest at once.
bool has_room(engine_core& core, const peer& to) noexcept;

/// For destructors: `sink` gets no more mail, if it is the one that does. Where the caller cannot
/// wait: soon, before a later end_serving().
void refuse_mail(engine_core& core, const mail_sink* sink) noexcept;

/// Sends up to three pieces, as one message. False, and nothing was sent: they are longer than what
/// goes to that peer without being asked. Waits while too much is queued for the peer, in a ULT or
/// a thread; elsewhere throws error{overloaded}. It may be lost with its peer, which is counted as
/// a one-way call that was lost. Threads: any. Failure: throws error{closed}, {disconnected},
/// {no_memory}. Cost: no allocation on the engine's stream if the port takes it at once; else a
/// copy.
bool post_mail(engine_core& core, const peer& to, std::initializer_list<const_bytes> pieces);

/// In front of the content of mail: what the layer above tells itself.
inline constexpr std::size_t mail_head_bytes = 24;
using mail_head = std::array<std::byte, mail_head_bytes>;

/// The same for a head and a content. Cost: on the engine's stream, over shared memory, with up to
/// 8 bytes of content: written where the peer reads it, nothing else.
bool post_mail(engine_core& core, const peer& to, const mail_head& head, const_bytes content);

}  // namespace amalgam::detail
