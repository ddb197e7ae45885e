package flightproto

import (
	"fmt"

	"skein/catalog"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

func encodeOperator(op planner.Operator) (*pb.Operator, error) {
	switch op := op.(type) {
	case *planner.TabletScan:
		return encodeScan(op)
	case *planner.ValuesSource:
		return encodeValues(op)
	case *planner.ExchangeSource:
		return encodeSource(op)
	case *planner.ExchangeSink:
		return &pb.Operator{Kind: &pb.Operator_ExchangeSink{ExchangeSink: &pb.ExchangeSink{Exchange: uint32(op.Exchange)}}}, nil
	case *planner.FilterOp:
		predicate, err := encodeOperand(op.Predicate)
		if err != nil {
			return nil, err
		}
		return &pb.Operator{Kind: &pb.Operator_Filter{Filter: &pb.FilterOp{Predicate: predicate}}}, nil
	case *planner.ProjectOp:
		return encodeProject(op)
	case *planner.PartialAggregate:
		agg, err := encodeAggregate(planner.FinalAggregate(*op))
		if err != nil {
			return nil, err
		}
		return &pb.Operator{Kind: &pb.Operator_PartialAggregate{PartialAggregate: agg}}, nil
	case *planner.FinalAggregate:
		agg, err := encodeAggregate(*op)
		if err != nil {
			return nil, err
		}
		return &pb.Operator{Kind: &pb.Operator_FinalAggregate{FinalAggregate: agg}}, nil
	case *planner.CompleteAggregate:
		agg, err := encodeAggregate(planner.FinalAggregate(*op))
		if err != nil {
			return nil, err
		}
		return &pb.Operator{Kind: &pb.Operator_CompleteAggregate{CompleteAggregate: agg}}, nil
	case *planner.WindowOp:
		return encodeWindow(op)
	case *planner.UnionAll:
		return encodeUnion(op)
	case *planner.HashJoin:
		return encodeJoin(op)
	case *planner.MergeSort:
		return encodeMergeSort(op)
	case *planner.TopK:
		return encodeTopK(op)
	case *planner.LimitOp:
		return &pb.Operator{Kind: &pb.Operator_Limit{Limit: &pb.LimitOp{Limit: op.Limit, Offset: op.Offset}}}, nil
	}
	return nil, fmt.Errorf("encoding a plan: unknown operator %T", op)
}

func encodeScan(op *planner.TabletScan) (*pb.Operator, error) {
	if op.Table == nil {
		return nil, fmt.Errorf("encoding a plan: scan of tablet %d without a table", op.Tablet)
	}
	projection := make([]int32, len(op.Projection))
	for i, c := range op.Projection {
		if !planner.ValidProjection(op.Table, c) {
			return nil, fmt.Errorf("encoding a plan: table %s has no column %d", op.Table.QualifiedName(), c)
		}
		projection[i] = int32(c)
	}
	filter, err := EncodeExpr(op.Filter)
	if err != nil {
		return nil, err
	}
	return &pb.Operator{Kind: &pb.Operator_TabletScan{TabletScan: &pb.TabletScan{
		TableId: uint64(op.Table.ID), TabletId: uint64(op.Tablet), Projection: projection, Filter: filter,
		TableVersion: op.Table.Version,
	}}}, nil
}

func encodeValues(op *planner.ValuesSource) (*pb.Operator, error) {
	schema, err := EncodeSchema(op.Schema)
	if err != nil {
		return nil, err
	}
	rows := make([]*pb.Row, len(op.Rows))
	for i, row := range op.Rows {
		values, err := encodeExprs(row)
		if err != nil {
			return nil, err
		}
		rows[i] = &pb.Row{Values: values}
	}
	return &pb.Operator{Kind: &pb.Operator_Values{Values: &pb.ValuesSource{Schema: schema, Rows: rows}}}, nil
}

func encodeSource(op *planner.ExchangeSource) (*pb.Operator, error) {
	input, err := encodeOrdinal(op.Input)
	if err != nil {
		return nil, err
	}
	schema, err := EncodeSchema(op.Schema)
	if err != nil {
		return nil, err
	}
	return &pb.Operator{Kind: &pb.Operator_ExchangeSource{ExchangeSource: &pb.ExchangeSource{
		Exchange: uint32(op.Exchange), Input: input, Schema: schema,
	}}}, nil
}

func encodeProject(op *planner.ProjectOp) (*pb.Operator, error) {
	exprs, err := encodeExprs(op.Exprs)
	if err != nil {
		return nil, err
	}
	schema, err := EncodeSchema(op.Schema)
	if err != nil {
		return nil, err
	}
	return &pb.Operator{Kind: &pb.Operator_Project{Project: &pb.ProjectOp{Exprs: exprs, Schema: schema}}}, nil
}

func encodeJoin(op *planner.HashJoin) (*pb.Operator, error) {
	residual, err := EncodeExpr(op.Residual)
	if err != nil {
		return nil, err
	}
	schema, err := EncodeSchema(op.Schema)
	if err != nil {
		return nil, err
	}
	on := make([]*pb.JoinKey, len(op.On))
	for i, k := range op.On {
		pair, err := encodeOrdinals([]int{k.Left, k.Right})
		if err != nil {
			return nil, err
		}
		on[i] = &pb.JoinKey{Left: pair[0], Right: pair[1], NullSafe: k.NullSafe}
	}
	return &pb.Operator{Kind: &pb.Operator_HashJoin{HashJoin: &pb.HashJoin{
		Strategy: string(op.Strategy), Kind: string(op.Kind), On: on,
		Residual: residual, Build: string(op.Build), Schema: schema,
	}}}, nil
}

func encodeTopK(op *planner.TopK) (*pb.Operator, error) {
	keys, err := encodeSortKeys(op.Keys)
	if err != nil {
		return nil, err
	}
	ties, err := encodeSortKeys(op.Ties)
	if err != nil {
		return nil, err
	}
	return &pb.Operator{Kind: &pb.Operator_TopK{TopK: &pb.TopK{K: op.K, Keys: keys, Ties: ties, First: op.First, Refill: op.Refill}}}, nil
}

func encodeMergeSort(op *planner.MergeSort) (*pb.Operator, error) {
	keys, err := encodeSortKeys(op.Keys)
	if err != nil {
		return nil, err
	}
	return &pb.Operator{Kind: &pb.Operator_MergeSort{MergeSort: &pb.MergeSort{Keys: keys, Limit: op.Limit, Sorted: op.Sorted}}}, nil
}

func encodeSortKeys(list []planner.SortKey) ([]*pb.SortKey, error) {
	keys := make([]*pb.SortKey, len(list))
	for i, k := range list {
		var err error
		if keys[i], err = encodeSortKey(k); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func encodeSortKey(k planner.SortKey) (*pb.SortKey, error) {
	column, err := encodeOrdinal(k.Column)
	if err != nil {
		return nil, err
	}
	return &pb.SortKey{Column: column, Descending: k.Descending, NullsFirst: k.NullsFirst}, nil
}

func decodeOperator(p *pb.Operator, tables TableResolver) (planner.Operator, error) {
	switch k := p.GetKind().(type) {
	case *pb.Operator_TabletScan:
		return decodeScan(k.TabletScan, tables)
	case *pb.Operator_Values:
		return decodeValues(k.Values)
	case *pb.Operator_ExchangeSource:
		schema, err := DecodeSchema(k.ExchangeSource.GetSchema())
		if err != nil {
			return nil, err
		}
		return &planner.ExchangeSource{
			Exchange: planner.ExchangeID(k.ExchangeSource.GetExchange()),
			Input:    int(k.ExchangeSource.GetInput()),
			Schema:   schema,
		}, nil
	case *pb.Operator_ExchangeSink:
		return &planner.ExchangeSink{Exchange: planner.ExchangeID(k.ExchangeSink.GetExchange())}, nil
	case *pb.Operator_Filter:
		predicate, err := decodeOperand(k.Filter.GetPredicate())
		if err != nil {
			return nil, err
		}
		return &planner.FilterOp{Predicate: predicate}, nil
	case *pb.Operator_Project:
		return decodeProject(k.Project)
	case *pb.Operator_PartialAggregate:
		agg, err := decodeAggregate(k.PartialAggregate)
		if err != nil {
			return nil, err
		}
		partial := planner.PartialAggregate(*agg)
		return &partial, nil
	case *pb.Operator_FinalAggregate:
		agg, err := decodeAggregate(k.FinalAggregate)
		if err != nil {
			return nil, err
		}
		return agg, nil
	case *pb.Operator_CompleteAggregate:
		agg, err := decodeAggregate(k.CompleteAggregate)
		if err != nil {
			return nil, err
		}
		complete := planner.CompleteAggregate(*agg)
		return &complete, nil
	case *pb.Operator_Window:
		return decodeWindow(k.Window)
	case *pb.Operator_UnionAll:
		return decodeUnion(k.UnionAll)
	case *pb.Operator_HashJoin:
		return decodeJoin(k.HashJoin)
	case *pb.Operator_MergeSort:
		return &planner.MergeSort{Limit: k.MergeSort.GetLimit(), Sorted: k.MergeSort.GetSorted(), Keys: decodeSortKeys(k.MergeSort.GetKeys())}, nil
	case *pb.Operator_TopK:
		return &planner.TopK{
			K: k.TopK.GetK(), Keys: decodeSortKeys(k.TopK.GetKeys()), Ties: decodeSortKeys(k.TopK.GetTies()), First: k.TopK.GetFirst(), Refill: k.TopK.GetRefill(),
		}, nil
	case *pb.Operator_Limit:
		return &planner.LimitOp{Limit: k.Limit.GetLimit(), Offset: k.Limit.GetOffset()}, nil
	}
	return nil, malformed("operator without a kind")
}

func decodeScan(p *pb.TabletScan, tables TableResolver) (planner.Operator, error) {
	table, err := tables(catalog.TableID(p.GetTableId()))
	if err != nil {
		return nil, err
	}
	if _, ok := table.Tablet(catalog.TabletID(p.GetTabletId())); !ok {
		return nil, TabletReplaced(table, catalog.TabletID(p.GetTabletId()))
	}
	if v := p.GetTableVersion(); v != table.Version {
		return nil, WithReason(StaleMetadata, sqlstate.New(sqlstate.SerializationFailure,
			"the plan is for version %d of table %s, which is at version %d here", v, table.QualifiedName(), table.Version).
			WithHint("Run the statement again."))
	}
	var projection []int
	for _, c := range p.GetProjection() {
		if !planner.ValidProjection(table, int(c)) {
			return nil, malformed("scan of column %d of table %s, which has %d", c, table.QualifiedName(), len(table.Columns))
		}
		projection = append(projection, int(c))
	}
	filter, err := DecodeExpr(p.GetFilter())
	if err != nil {
		return nil, err
	}
	return &planner.TabletScan{
		Table: table, Tablet: catalog.TabletID(p.GetTabletId()), Projection: projection, Filter: filter,
	}, nil
}

func decodeValues(p *pb.ValuesSource) (planner.Operator, error) {
	schema, err := DecodeSchema(p.GetSchema())
	if err != nil {
		return nil, err
	}
	if schema == nil {
		return nil, malformed("values without a schema")
	}
	out := &planner.ValuesSource{Schema: schema}
	for i, row := range p.GetRows() {
		values, err := decodeExprs(row.GetValues())
		if err != nil {
			return nil, err
		}
		if len(values) != schema.NumFields() {
			return nil, malformed("row %d of values has %d columns instead of %d", i, len(values), schema.NumFields())
		}
		out.Rows = append(out.Rows, values)
	}
	return out, nil
}

func decodeProject(p *pb.ProjectOp) (planner.Operator, error) {
	exprs, err := decodeExprs(p.GetExprs())
	if err != nil {
		return nil, err
	}
	schema, err := DecodeSchema(p.GetSchema())
	if err != nil {
		return nil, err
	}
	if schema == nil || schema.NumFields() != len(exprs) {
		return nil, malformed("projection of %d expressions has another schema", len(exprs))
	}
	return &planner.ProjectOp{Exprs: exprs, Schema: schema}, nil
}

func decodeJoin(p *pb.HashJoin) (planner.Operator, error) {
	residual, err := DecodeExpr(p.GetResidual())
	if err != nil {
		return nil, err
	}
	schema, err := DecodeSchema(p.GetSchema())
	if err != nil {
		return nil, err
	}
	out := &planner.HashJoin{
		Strategy: planner.JoinStrategy(p.GetStrategy()),
		Kind:     planner.JoinKind(p.GetKind()),
		Residual: residual,
		Build:    planner.BuildSide(p.GetBuild()),
		Schema:   schema,
	}
	for _, k := range p.GetOn() {
		out.On = append(out.On, planner.JoinKey{Left: int(k.GetLeft()), Right: int(k.GetRight()), NullSafe: k.GetNullSafe()})
	}
	return out, nil
}

func decodeSortKeys(list []*pb.SortKey) []planner.SortKey {
	var keys []planner.SortKey
	for _, k := range list {
		keys = append(keys, decodeSortKey(k))
	}
	return keys
}

func decodeSortKey(k *pb.SortKey) planner.SortKey {
	return planner.SortKey{Column: int(k.GetColumn()), Descending: k.GetDescending(), NullsFirst: k.GetNullsFirst()}
}
