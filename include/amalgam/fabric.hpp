#pragma once

/// Ports, peers, messages and memory regions: what transports offer. All public headers of the
/// layer, and the alias `am`.
#include <amalgam/core/alias.hpp>
#include <amalgam/fabric/broadcast_medium.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/identity.hpp>
#include <amalgam/fabric/key_folder.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/one_sided.hpp>
#include <amalgam/fabric/packets.hpp>
#include <amalgam/fabric/plugin.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/region.hpp>
#include <amalgam/fabric/shared_block.hpp>
#include <amalgam/fabric/signed_broadcast.hpp>
#include <amalgam/fabric/temporary_key.hpp>
#include <amalgam/fabric/transport.hpp>
