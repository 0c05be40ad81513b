#pragma once

/// The engine and typed procedures. All public headers of the layer, and the alias `am`.
#include <amalgam/core/alias.hpp>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/archive_context.hpp>
#include <amalgam/rpc/body.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/call_statistics.hpp>
#include <amalgam/rpc/codec.hpp>
#include <amalgam/rpc/codec_containers.hpp>
#include <amalgam/rpc/codec_std.hpp>
#include <amalgam/rpc/describe.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/engine_config.hpp>
#include <amalgam/rpc/engine_streams.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/peer_lost.hpp>
#include <amalgam/rpc/procedure.hpp>
#include <amalgam/rpc/provider.hpp>
#include <amalgam/rpc/raw_call.hpp>
#include <amalgam/rpc/responder.hpp>
#include <amalgam/rpc/stream_writer.hpp>
#include <amalgam/rpc/streamed.hpp>
#include <amalgam/rpc/trace_context.hpp>
#include <amalgam/rpc/type_name.hpp>
