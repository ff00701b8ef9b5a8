//! The bytes that clients of Doorman send and expect: put together here by tag and wire type, as their generated code does.

use std::time::Duration;

use bytes::{Buf, BufMut};
use tallygate::chrono::DateTime;
use tallygate::policy::{Share, Sharing};
use tallygate::testing::Clock;
use tallygate::{Limiter, Policy};
use tallygate_doorman::Doorman;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Status};

/// Bytes as they are.
#[derive(Clone, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; from.remaining()];
        from.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn number(field: u8, number: i64) -> Vec<u8> {
    [vec![field << 3], varint(number as u64)].concat()
}

fn double(field: u8, number: f64) -> Vec<u8> {
    [&[field << 3 | 1][..], &number.to_le_bytes()].concat()
}

fn text(field: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [&[field << 3 | 2][..], &varint(bytes.len() as u64), bytes].concat()
}

fn lease(ends: i64, refresh: i64, capacity: f64) -> Vec<u8> {
    [number(1, ends), number(2, refresh), double(3, capacity)].concat()
}

/// 2026-01-01, in seconds since 1970.
const NOW: i64 = 1_767_225_600;

async fn channel() -> Channel {
    let clock = Clock::at(DateTime::from_timestamp(NOW, 0).unwrap());
    let limiter = Limiter::connect("sqlite::memory:").await.unwrap().with_clock(&clock).unwrap();
    let sharing = Sharing::every(Share::Proportional, Duration::from_secs(16));
    let policy = Policy::capacity(120, Duration::from_secs(300)).unwrap().with_sharing(Some(sharing));
    limiter.operator().set_zone("gpu", &policy, None, "test").await.unwrap();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = format!("http://{}", incoming.local_addr().unwrap());
    let doorman = Doorman::new(limiter, []).at("db:5000").into_service();
    tokio::spawn(Server::builder().add_service(doorman).serve_with_incoming(incoming));
    Endpoint::from_shared(at).unwrap().connect().await.unwrap()
}

async fn ask(channel: &Channel, call: &'static str, bytes: Vec<u8>) -> Vec<u8> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    grpc.unary(Request::new(bytes), PathAndQuery::from_static(call), Raw).await.unwrap().into_inner()
}

#[tokio::test]
async fn every_call_is_answered_in_the_bytes_of_the_protocol() {
    let channel = channel().await;
    let answer = ask(&channel, "/doorman.Capacity/Discovery", vec![]).await;
    assert_eq!(answer, [text(1, text(1, "db:5000")), number(2, 1)].concat());

    // A priority of 0 and a wish for nothing are written all the same: they are required.
    let of = |wants, has: Vec<u8>| [text(1, "gpu"), number(2, 0), has, double(4, wants)].concat();
    let request = [text(1, "c1"), text(2, of(80.0, vec![]))].concat();
    let answer = ask(&channel, "/doorman.Capacity/GetCapacity", request).await;
    let gets = lease(NOW + 300, 16, 80.0);
    assert_eq!(answer, text(1, [text(1, "gpu"), text(2, gets.clone()), double(3, 120.0)].concat()));
    let request = [text(1, "c1"), text(2, of(0.0, text(3, gets)))].concat();
    let answer = ask(&channel, "/doorman.Capacity/GetCapacity", request).await;
    assert_eq!(answer, text(1, [text(1, "gpu"), text(2, lease(NOW, 16, 0.0)), double(3, 120.0)].concat()));

    let band = [number(1, 7), number(2, 3), double(3, 500.0)].concat();
    let request = [text(1, "eu"), text(2, [text(1, "gpu"), text(3, band)].concat())].concat();
    let answer = ask(&channel, "/doorman.Capacity/GetServerCapacity", request).await;
    let algorithm = [number(1, 2), number(2, 300), number(3, 16), number(5, 0)].concat();
    let told = [text(1, "gpu"), text(2, lease(NOW + 300, 16, 120.0)), text(3, algorithm), double(4, 120.0)];
    assert_eq!(answer, text(1, told.concat()));

    let request = [text(1, "c1"), text(2, "gpu")].concat();
    assert_eq!(ask(&channel, "/doorman.Capacity/ReleaseCapacity", request).await, [0_u8; 0]);
}
