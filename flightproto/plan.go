package flightproto

import (
	"fmt"

	"skein/catalog"
	"skein/flightproto/pb"
	"skein/planner"
)

// TableResolver finds a table by id while a fragment is decoded: scans carry
// ids only. Its errors are passed through.
type TableResolver func(catalog.TableID) (*catalog.Table, error)

// EncodeFragment encodes a fragment. Generation is that of the tablet it is
// assigned to, 0 if it has none; the worker refuses another one.
func EncodeFragment(f *planner.Fragment, generation uint64) (*pb.Fragment, error) {
	out := &pb.Fragment{
		Id:               uint32(f.ID),
		TabletId:         uint64(f.Assignment.Tablet),
		TabletGeneration: generation,
		Operators:        make([]*pb.Operator, len(f.Operators)),
		EstimatedRows:    f.EstimatedRows,
		EstimatedBytes:   f.EstimatedBytes,
		MaxSpillBytes:    f.MaxSpill,
	}
	for i, op := range f.Operators {
		var err error
		if out.Operators[i], err = encodeOperator(op); err != nil {
			return nil, fmt.Errorf("fragment %d, operator %d: %w", f.ID, i, err)
		}
	}
	return out, nil
}

// DecodeFragment reverses EncodeFragment.
func DecodeFragment(p *pb.Fragment, tables TableResolver) (*planner.Fragment, error) {
	out := &planner.Fragment{
		ID:             planner.FragmentID(p.GetId()),
		Assignment:     planner.Assignment{Tablet: catalog.TabletID(p.GetTabletId())},
		EstimatedRows:  p.GetEstimatedRows(),
		EstimatedBytes: p.GetEstimatedBytes(),
		MaxSpill:       p.GetMaxSpillBytes(),
	}
	for i, op := range p.GetOperators() {
		decoded, err := decodeOperator(op, tables)
		if err != nil {
			return nil, fmt.Errorf("fragment %d, operator %d: %w", p.GetId(), i, err)
		}
		out.Operators = append(out.Operators, decoded)
	}
	return out, nil
}

// EncodeExchange encodes one end of an exchange. ProducerAddress, for the
// consuming end, is the worker to pull it from; empty for the producing end.
func EncodeExchange(x *planner.Exchange, producerAddress string) (*pb.Exchange, error) {
	keys, err := encodeOrdinals(x.Keys)
	if err != nil {
		return nil, err
	}
	partition, err := encodeOrdinal(x.Partition)
	if err != nil {
		return nil, err
	}
	partitions, err := encodeOrdinal(x.Partitions)
	if err != nil {
		return nil, err
	}
	schema, err := EncodeSchema(x.Schema)
	if err != nil {
		return nil, fmt.Errorf("exchange %d: %w", x.ID, err)
	}
	return &pb.Exchange{
		Id:              uint32(x.ID),
		Producer:        uint32(x.Producer),
		Consumer:        uint32(x.Consumer),
		Kind:            string(x.Kind),
		Keys:            keys,
		Partition:       partition,
		Partitions:      partitions,
		Schema:          schema,
		Fingerprint:     x.Fingerprint,
		ProducerAddress: producerAddress,
		PublicTypes:     x.Public,
	}, nil
}

// DecodeExchange reverses EncodeExchange, but for the producer's address.
func DecodeExchange(p *pb.Exchange) (*planner.Exchange, error) {
	schema, err := DecodeSchema(p.GetSchema())
	if err != nil {
		return nil, fmt.Errorf("exchange %d: %w", p.GetId(), err)
	}
	kind := planner.ExchangeKind(p.GetKind())
	switch kind {
	case planner.HashRepartitionExchange, planner.BroadcastExchange, planner.MergeExchange, planner.SharedExchange:
	default:
		return nil, malformed("exchange %d has unknown kind %q", p.GetId(), p.GetKind())
	}
	return &planner.Exchange{
		ID:          planner.ExchangeID(p.GetId()),
		Producer:    planner.FragmentID(p.GetProducer()),
		Consumer:    planner.FragmentID(p.GetConsumer()),
		Kind:        kind,
		Keys:        decodeOrdinals(p.GetKeys()),
		Partition:   int(p.GetPartition()),
		Partitions:  int(p.GetPartitions()),
		Schema:      schema,
		Fingerprint: p.GetFingerprint(),
		Public:      p.GetPublicTypes(),
	}, nil
}
